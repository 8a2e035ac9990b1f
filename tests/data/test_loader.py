from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from oomph.data import (
    Batch,
    BatchSpec,
    ImageIndex,
    Letterbox,
    Loader,
    LoaderOptions,
    Shard,
    Transform,
    decode,
)
from oomph.errors import OomphError, UsageError

from .pictures import claim_size, photos, scene
from .recipes import Mosaic, darken, deadly, sleepy, wrong


def listed(loader: Loader) -> list[tuple[list[int], int]]:
    """Samples and a checksum of each batch of an epoch."""
    return [(batch.indices.tolist(), int(batch.images.long().sum())) for batch in loader]


def samples(loader: Loader) -> list[int]:
    return [index for indices, _ in listed(loader) for index in indices]


@pytest.mark.parametrize("host", [{"threads": 2}, {"workers": 1}])
def test_pinned_batches_are_the_same_ones_and_may_be_kept(tmp_path: Path, host: dict[str, int]) -> None:
    with Loader(photos(tmp_path, 5), size=64, batch=2, **host) as loader:  # type: ignore[arg-type]
        plain = [batch.images.clone() for batch in loader]
        kept = list(loader.ahead(time.perf_counter, pin=True))
        assert all(batch.images.is_pinned() == torch.cuda.is_available() for batch in kept)
        assert all(torch.equal(one, batch.images) for one, batch in zip(plain, kept, strict=True))


def test_a_batch_is_a_tuple_of_bytes_indices_and_places(tmp_path: Path) -> None:
    files = photos(tmp_path, 5)
    batches = list(Loader(files, size=64, batch=2))
    assert [len(batch.indices) for batch in batches] == [2, 2, 1]
    images, indices, targets = batches[0]
    assert isinstance(batches[0], Batch)
    assert images.shape == (2, 3, 64, 64)
    assert images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert indices.tolist() == [0, 1]
    assert targets[0] == Letterbox((0, 0, 96, 64), (64, 43), 0, 10)  # type: ignore[arg-type]
    wanted = decode(files[1], (64, 64)).pixels
    assert np.array_equal(images[1, :, 10:53].permute(1, 2, 0).numpy(), wanted)
    assert images[1, :, :10].unique().tolist() == [114]


def test_a_folder_and_an_index_load_alike(tmp_path: Path) -> None:
    photos(tmp_path, 4)
    index = ImageIndex.open(tmp_path)
    assert listed(Loader(tmp_path, 32)) == listed(Loader(index, 32)) == listed(Loader(list(index.paths()), 32))


def test_a_canvas_may_be_a_rectangle(tmp_path: Path) -> None:
    (batch,) = Loader(photos(tmp_path, 1), size=(40, 80), batch=1)
    assert batch.images.shape == (1, 3, 40, 80)


def test_order_is_that_of_the_seed_whatever_the_number_of_threads(tmp_path: Path) -> None:
    files = photos(tmp_path, 17)
    one = Loader(files, 32, 4, shuffle=True, seed=3, threads=1)
    first, second = listed(one), listed(one)
    assert first != second
    assert sorted(i for indices, _ in first for i in indices) == list(range(17))
    for threads, prefetch in ((2, 1), (7, 5)):
        many = Loader(files, 32, 4, shuffle=True, seed=3, threads=threads, options=LoaderOptions(prefetch=prefetch))
        assert (listed(many), listed(many)) == (first, second)
    assert listed(Loader(files, 32, 4, shuffle=True, seed=4)) != first


def test_an_epoch_can_be_asked_for_again(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 9), 32, 2, shuffle=True)
    epochs = [samples(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert samples(loader) == epochs[1]


@pytest.mark.parametrize("done", range(6))
def test_resuming_gives_exactly_the_remaining_samples(tmp_path: Path, done: int) -> None:
    files = photos(tmp_path, 11)
    whole = Loader(files, 32, 2, shuffle=True, seed=1)
    epochs = [listed(whole), listed(whole)]
    broken_off = Loader(files, 32, 2, shuffle=True, seed=1, threads=3)
    iterator = iter(broken_off)
    for _ in range(done):
        next(iterator)
    resumed = Loader(files, 32, 2, shuffle=True, seed=1, threads=1)
    resumed.load_state_dict(broken_off.state_dict())
    resumed.set_epoch(0)  # what training loops say at the start of an epoch
    assert listed(resumed) == epochs[0][done:]
    assert listed(resumed) == epochs[1]


def test_a_place_in_another_order_is_refused(tmp_path: Path) -> None:
    files = photos(tmp_path, 6)
    state = Loader(files, 32, 2, shuffle=True).state_dict()
    with pytest.raises(UsageError, match="another order"):
        Loader(files, 32, 3, shuffle=True).load_state_dict(state)


def test_ranks_share_the_samples_evenly(tmp_path: Path) -> None:
    files = photos(tmp_path, 11)
    shares = [samples(Loader(files, 32, 2, shuffle=True, shard=Shard(rank, 3))) for rank in range(3)]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert set().union(*shares) == set(range(11))
    short = [samples(Loader(files, 32, 2, shard=Shard(rank, 3, drop_last=True))) for rank in range(3)]
    assert [len(share) for share in short] == [2, 2, 2]
    exact = [samples(Loader(files, 32, 2, shard=Shard(rank, 3), on_error="drop")) for rank in range(3)]
    assert sorted(chain.from_iterable(exact)) == list(range(11))


def test_a_length_is_the_number_of_batches(tmp_path: Path) -> None:
    files = photos(tmp_path, 7)
    assert len(Loader(files, 32, 2)) == 4
    assert Loader(files, 32, 2).last == 1
    short = Loader(files, 32, 2, shard=Shard(drop_last=True))
    assert (len(short), short.last) == (3, 2)


def test_a_batch_stays_as_it_is_while_it_is_held(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 12), 32, 2, threads=4)
    kept = [(batch.images, batch.images.clone()) for batch in loader]
    assert all(torch.equal(held, copy) for held, copy in kept)


def test_memory_is_used_again_when_nobody_holds_it(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 3) * 10, 32, 2, threads=2, options=LoaderOptions(prefetch=2))
    made = loader._slots.made  # type: ignore[attr-defined]
    for batch in loader:
        last = batch.images[0, 0]  # a view of a view holds the batch too
        del batch
    assert loader._slots.made <= made + 1  # type: ignore[attr-defined]
    assert last.shape == (32, 32)


def test_a_recipe_may_make_a_sample_of_several_images(tmp_path: Path) -> None:
    files = photos(tmp_path, 6)
    runs = []
    for hands in ({"threads": 1}, {"threads": 4}, {"options": LoaderOptions(workers=2, start="fork")}):
        with Loader(files, 64, 3, builder=Mosaic(6), collate=list, shuffle=True, **hands) as loader:
            runs.append([(batch.targets, int(batch.images.long().sum())) for batch in loader])
    assert runs[0] == runs[1] == runs[2]
    assert all(len(chosen) == 4 for targets, _ in runs[0] for chosen, _ in targets)


def test_a_function_of_the_user_transforms_samples(tmp_path: Path) -> None:
    files = photos(tmp_path, 4)
    plain, dark = Loader(files, 32, 4), Loader(files, 32, 4, builder=Transform(darken))
    (before,), (after,) = plain, dark
    assert after.targets == (0, 10, 20, 30)
    assert (after.images.float() < before.images.float() * 0.51 + 1).all()


@pytest.mark.parametrize("hands", [{"threads": 3}, {"options": LoaderOptions(workers=2, start="fork")}], ids=str)
def test_an_error_in_a_transform_is_raised_unchanged_where_its_batch_is_asked_for(
    tmp_path: Path, hands: dict[str, Any]
) -> None:
    seen: list[list[int]] = []
    with Loader(photos(tmp_path, 9), 32, 2, builder=Transform(wrong), **hands) as loader:
        with pytest.raises(ZeroDivisionError, match="a mistake in the transform"):
            seen.extend(batch.indices.tolist() for batch in loader)
        assert seen == [[0, 1], [2, 3]]


def test_a_transform_that_returns_something_else_is_told_what_it_must(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 1), 32, 1, builder=Transform(lambda image, index, rng: image.astype(np.float32)))
    with pytest.raises(UsageError, match=r"float32 of shape \(32, 32, 3\), not bytes"):
        list(loader)


def test_files_that_vanish_or_break_are_set_aside_and_replaced_by_the_next(tmp_path: Path) -> None:
    files = photos(tmp_path, 8)
    results = []
    for threads in (1, 4):
        loader = Loader(files, 32, 2, threads=threads)
        gone = Path(files[3]).read_bytes(), Path(files[6]).read_bytes()
        Path(files[3]).unlink()
        Path(files[6]).write_bytes(gone[1][: len(gone[1]) // 2])
        results.append(samples(loader))
        reasons = {Path(skipped.path).name: skipped.reason for skipped in loader.skipped()}
        assert reasons.keys() == {"photo003.jpg", "photo006.jpg"}
        assert "is gone" in reasons["photo003.jpg"]
        Path(files[3]).write_bytes(gone[0])
        Path(files[6]).write_bytes(gone[1])
    assert results[0] == results[1] == [0, 1, 2, 4, 4, 5, 7, 7]


def test_a_mosaic_that_needs_a_broken_image_is_replaced_and_the_image_is_named(tmp_path: Path) -> None:
    files = photos(tmp_path, 6)
    runs = []
    for threads in (1, 4):
        loader = Loader(files, 64, 3, builder=Mosaic(6), collate=list, threads=threads)
        hidden = Path(files[4]).rename(tmp_path / "hidden")
        runs.append([(batch.indices.tolist(), batch.targets) for batch in loader])
        assert [Path(skipped.path).name for skipped in loader.skipped()] == ["photo004.jpg"]
        hidden.rename(files[4])
    assert runs[0] == runs[1]
    used = [chosen for _, targets in runs[0] for chosen, _ in targets]
    assert len(used) == 6
    assert not any(4 in chosen for chosen in used)


def test_broken_files_may_be_left_out_instead(tmp_path: Path) -> None:
    files = photos(tmp_path, 6)
    loader = Loader(files, 32, 2, on_error="drop")
    for number in (2, 3, 5):
        Path(files[number]).unlink()
    batches = list(loader)
    assert [batch.indices.tolist() for batch in batches] == [[0, 1], [4]]
    assert [len(batch.targets) for batch in batches] == [2, 1]


def test_when_nothing_can_be_used_the_loader_says_so(tmp_path: Path) -> None:
    files = photos(tmp_path, 3)
    loader = Loader(files, 32, 2)
    for file in files:
        Path(file).unlink()
    with pytest.raises(OomphError, match="all are set aside"):
        list(loader)
    with pytest.raises(UsageError, match=r"none of the 3 files can be used .*No such file"):
        Loader(files, 32, 2)
    with pytest.raises(UsageError, match="there are no images here"):
        Loader([], 32, 2)


def test_what_no_path_decodes_within_the_budget_is_named_before_anything_is_allocated(tmp_path: Path) -> None:
    files = photos(tmp_path, 3)
    for name, options in (("huge.png", {}), ("progressive.jpg", {"progressive": True}), ("baseline.jpg", {})):
        Image.new("RGB", (64, 64)).save(tmp_path / name, **options)  # type: ignore[arg-type]
        claim_size(tmp_path / name, 20000, 20000)
        files.append(str(tmp_path / name))
    loader = Loader(files, 640, 2, budget="256MB")
    assert [Path(skipped.path).name for skipped in loader.skipped()] == ["huge.png", "progressive.jpg"]
    assert all("more than the 240 MiB" in skipped.reason for skipped in loader.skipped())


def test_a_budget_is_never_passed_however_many_threads(tmp_path: Path) -> None:
    files = []
    for number in range(6):
        Image.effect_noise((1600, 1200), 50).save(tmp_path / f"{number}.png")
        files.append(str(tmp_path / f"{number}.png"))
    loader = Loader(files, 64, 2, budget="40MB", threads=8)
    from oomph.data.loader import _loader
    from oomph.data.loader._admission import Admission

    admission = Admission(loader._admitted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loader, "Admission", lambda budget: admission)
        assert len(samples(loader)) == 6
    assert 0 < admission.highest <= admission.budget <= 40_000_000


def test_a_process_stays_within_the_budget_however_many_threads(tmp_path: Path) -> None:
    pixels = np.tile(scene(500, 400), (5, 5, 1))
    for number in range(3):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png", compress_level=1)
    Image.fromarray(pixels).save(tmp_path / "progressive.jpg", progressive=True)
    code = script(
        f"""
        import threading
        files = [f"{tmp_path}/{{name}}" for name in ("0.png", "1.png", "2.png", "progressive.jpg")] * 4
        loader = Loader(files, 64, 2, budget=100_000_000, threads=6)

        def held():
            lines = open("/proc/self/smaps_rollup").read().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))

        before = highest = held()
        def watch():
            global highest
            while watching:
                highest = max(highest, held())
                time.sleep(0.002)
        watching = True
        watcher = threading.Thread(target=watch)
        watcher.start()
        count = sum(len(batch.indices) for batch in loader)
        watching = False
        watcher.join()
        report = loader.report()
        print(count, highest - before, report.measured.process, report.plan.peak)
        """
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout
    count, over, measured, predicted = (int(word) for word in said.split())
    assert count == 16
    assert 20_000_000 < over < 100_000_000
    assert over * 0.8 < measured < predicted < 110_000_000


def test_a_loader_predicts_its_own_memory_and_notes_how_long_it_was_waited_for(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 4), 64, 2, budget="50MB", builder=Transform(sleepy), threads=1)
    list(loader)
    assert loader.waited > 0.05
    assert loader.predicted().decoding == 50_000_000
    assert loader.predicted().batches == 4 * 2 * 64 * 64 * 3


class Rectangles:
    """Batches of sizes of their own, as validation has them."""

    largest = BatchSpec(np.zeros(3, np.int64), 96, 64)

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        del number
        return [BatchSpec(np.array([0, 1, 2]), 96, 32), BatchSpec(np.array([4]), 64, 64)]


def test_an_order_of_ones_own_gives_batches_of_any_size(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 5), sampler=Rectangles())
    assert [tuple(batch.images.shape) for batch in loader] == [(3, 3, 32, 96), (1, 3, 64, 64)]
    assert len(loader) == 2


def oomph_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("oomph-data")]


def test_leaving_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 20), 32, 2, threads=4)
    for _ in loader:
        break
    gc.collect()
    assert not oomph_threads()
    iterator = iter(loader)
    next(iterator)
    assert oomph_threads()
    next(iter(loader))  # a new pass ends the old one
    assert list(iterator) == []
    loader.close()
    assert not oomph_threads()


def script(body: str) -> str:
    return "import sys, time\nfrom oomph.data import Loader\n" + textwrap.dedent(body)


def test_a_pass_that_is_never_finished_does_not_keep_the_program_alive(tmp_path: Path) -> None:
    files = photos(tmp_path, 12)
    code = script(f"it = iter(Loader({files!r}, 64, 2)); next(it)")
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_ctrl_c_ends_a_pass_at_once(tmp_path: Path) -> None:
    code = script(
        f"""
        def slow(image, index, rng):
            time.sleep(0.05)
            return image
        from oomph.data import Transform
        loader = Loader({photos(tmp_path, 1)!r} * 1000, 64, 2, builder=Transform(slow), threads=2)
        print("go", flush=True)
        for batch in loader:
            pass
        """
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in said
    assert child.returncode != 0


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path, start: str) -> None:
    files = photos(tmp_path, 16)
    with Loader(files, 32, 2, builder=Transform(sleepy), options=LoaderOptions(workers=2, start=start)) as loader:
        seen = []
        for number, batch in enumerate(loader):
            seen += batch.indices.tolist()
            if number == 1:
                for worker in loader._crew.workers:  # type: ignore[union-attr]
                    os.kill(worker._process.pid, signal.SIGKILL)  # type: ignore[union-attr, arg-type]
        assert seen == list(range(16))
        assert loader.skipped() == []


def test_a_sample_that_kills_its_workers_is_set_aside(tmp_path: Path) -> None:
    with Loader(
        photos(tmp_path, 6), 32, 2, builder=Transform(deadly), options=LoaderOptions(workers=1, start="fork")
    ) as loader:
        assert samples(loader) == [0, 1, 2, 4, 4, 5]
        assert [skipped.reason for skipped in loader.skipped()] == ["2 worker processes died of it (signal SIGKILL)"]


def test_workers_end_with_the_loader_and_their_memory_is_removed(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 8), 32, 2, options=LoaderOptions(workers=2, start="fork"))
    list(loader)
    workers = [worker._process for worker in loader._crew.workers]  # type: ignore[union-attr]
    shared = loader._slots.path  # type: ignore[attr-defined]
    assert Path(shared).exists()
    assert 1_000_000 < loader.report().measured.workers < loader.predicted().workers
    loader.close()
    assert not any(worker.is_alive() for worker in workers if worker)
    assert not Path(shared).exists()
    del loader


def test_a_recipe_that_cannot_travel_is_one_sentence(tmp_path: Path) -> None:
    loader = Loader(
        photos(tmp_path, 2), 32, 1, builder=Transform(lambda image, index, rng: image), options=LoaderOptions(workers=1)
    )
    with loader, pytest.raises(UsageError, match="can't be sent to a worker process"):
        list(loader)


def test_when_dev_shm_is_full_the_disk_is_used_and_when_that_is_full_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oomph.data.loader import _slab

    files = photos(tmp_path, 4)
    monkeypatch.setattr(_slab, "_SHM", "/proc")  # nothing can be made there
    with Loader(files, 32, 2, options=LoaderOptions(workers=1, start="fork")) as loader:
        assert not loader._slots.path.startswith("/dev/shm")  # type: ignore[attr-defined]
        assert samples(loader) == [0, 1, 2, 3]
    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    with pytest.raises(OomphError, match="neither /dev/shm nor the disk has it"):
        Loader(files, 32, 2, options=LoaderOptions(workers=1))


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_wrong_words_are_one_sentence(tmp_path: Path) -> None:
    files = photos(tmp_path, 1)
    for words in ({"batch": 0}, {"size": 0}, {"threads": 0}, {"on_error": "ignore"}, {"shard": Shard(1)}):
        with pytest.raises(UsageError):
            Loader(files, **words)
