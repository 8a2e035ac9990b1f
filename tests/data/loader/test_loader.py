from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
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
    TransformedSamples,
    decode,
)
from oomph.errors import OomphError, UsageError

from ..builders import Mosaic, darken, fail_on_5, sleep_20_ms
from ..images import overwrite_size, save_colors, save_photos, scene

FORKED = LoaderOptions(workers=2, start_method="fork")


def summaries(loader: Loader) -> list[tuple[list[int], int]]:
    """Return the samples and a checksum of each batch of an epoch."""
    return [(batch.indices.tolist(), int(batch.images.long().sum())) for batch in loader]


def samples(loader: Loader) -> list[int]:
    return [index for indices, _ in summaries(loader) for index in indices]


def test_batch_is_a_tuple_of_images_indices_and_targets(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 5)
    batches = list(Loader(files, size=64, batch=2))
    assert [len(batch.indices) for batch in batches] == [2, 2, 1]
    images, indices, targets = batches[0]
    assert isinstance(batches[0], Batch)
    assert images.shape == (2, 3, 64, 64)
    assert images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert indices.tolist() == [0, 1]
    assert targets[0] == Letterbox((0, 0, 96, 64), (64, 43), 0, 10)  # type: ignore[arg-type]
    expected = decode(files[1], (64, 64)).pixels
    assert np.array_equal(images[1, :, 10:53].permute(1, 2, 0).numpy(), expected)
    assert images[1, :, :10].unique().tolist() == [114]


def test_folder_index_and_list_give_the_same_batches(tmp_path: Path) -> None:
    save_photos(tmp_path, 4)
    index = ImageIndex.open(tmp_path)
    expected = summaries(Loader(index, 32))
    assert summaries(Loader(tmp_path, 32)) == summaries(Loader(list(index.paths()), 32)) == expected


def test_canvas_may_be_a_rectangle(tmp_path: Path) -> None:
    (batch,) = Loader(save_photos(tmp_path, 1), size=(40, 80), batch=1)
    assert batch.images.shape == (1, 3, 40, 80)


def test_order_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 17)
    single = Loader(files, 32, 4, shuffle=True, seed=3, threads=1)
    first, second = summaries(single), summaries(single)
    assert first != second
    assert sorted(index for indices, _ in first for index in indices) == list(range(17))
    for threads, prefetch in ((2, 1), (7, 5)):
        options = LoaderOptions(prefetch=prefetch)
        loader = Loader(files, 32, 4, shuffle=True, seed=3, threads=threads, options=options)
        assert (summaries(loader), summaries(loader)) == (first, second)
    assert summaries(Loader(files, 32, 4, shuffle=True, seed=4)) != first


def test_set_epoch_repeats_an_epoch(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 9), 32, 2, shuffle=True)
    epochs = [samples(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert samples(loader) == epochs[1]


@pytest.mark.medium
@pytest.mark.parametrize("done", range(6))
def test_resume_gives_exactly_the_remaining_batches(tmp_path: Path, done: int) -> None:
    files = save_photos(tmp_path, 11)
    complete = Loader(files, 32, 2, shuffle=True, seed=1)
    epochs = [summaries(complete), summaries(complete)]
    interrupted = Loader(files, 32, 2, shuffle=True, seed=1, threads=3)
    iterator = iter(interrupted)
    for _ in range(done):
        next(iterator)
    resumed = Loader(files, 32, 2, shuffle=True, seed=1, threads=1)
    resumed.load_state_dict(interrupted.state_dict())
    resumed.set_epoch(0)  # training loops call it at the start of every epoch
    assert summaries(resumed) == epochs[0][done:]
    assert summaries(resumed) == epochs[1]


def test_resume_rejects_another_order(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 6)
    state = Loader(files, 32, 2, shuffle=True).state_dict()
    with pytest.raises(UsageError, match="another order"):
        Loader(files, 32, 3, shuffle=True).load_state_dict(state)


def test_prefetching_consumer_passes_its_position(tmp_path: Path) -> None:
    files = save_colors(tmp_path, 6)
    with Loader(files, 20, 1, threads=1) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict((0, 2))  # two of the four batches were not used yet
    resumed = Loader(files, 20, 1, threads=1)
    resumed.load_state_dict(state)
    assert samples(resumed) == [2, 3, 4, 5]


def test_shard_selects_the_samples_of_a_rank(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 5)
    assert samples(Loader(files, 32, 2, shard=Shard(1, 2))) == [1, 3, 0]
    assert samples(Loader(files, 32, 2, shard=Shard(1, 2), on_error="drop")) == [1, 3]


def test_length_and_size_of_the_last_batch(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 7)
    loader = Loader(files, 32, 2)
    assert (len(loader), loader.last) == (4, 1)
    complete = Loader(files, 32, 2, shard=Shard(drop_last=True))
    assert (len(complete), complete.last) == (3, 2)


def test_batch_is_not_overwritten_while_it_is_held(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 12), 32, 2, threads=4)
    held = [(batch.images, batch.images.clone()) for batch in loader]
    assert all(torch.equal(images, copy) for images, copy in held)


def test_buffers_are_reused_when_batches_are_released(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 3) * 10, 32, 2, threads=2, options=LoaderOptions(prefetch=2))
    allocated = loader.report().measured.batches
    for batch in loader:
        view = batch.images[0, 0]  # a view of a view keeps the batch too
        del batch
    assert loader.report().measured.batches <= allocated + 2 * 32 * 32 * 3
    assert view.shape == (32, 32)


@pytest.mark.parametrize("options", [{"threads": 2}, pytest.param({"workers": 1}, marks=pytest.mark.medium)], ids=str)
def test_pinned_batches_have_the_same_content(tmp_path: Path, options: dict[str, Any]) -> None:
    with Loader(save_photos(tmp_path, 5), size=64, batch=2, **options) as loader:
        expected = [batch.images.clone() for batch in loader]
        pinned = list(loader.batches(pin_memory=True))
    assert all(batch.images.is_pinned() == torch.cuda.is_available() for batch in pinned)
    assert all(torch.equal(images, batch.images) for images, batch in zip(expected, pinned, strict=True))


@pytest.mark.medium
def test_builder_may_compose_several_images(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 6)
    runs = []
    settings: list[dict[str, Any]] = [{"threads": 1}, {"threads": 4}, {"options": FORKED}]
    for options in settings:
        with Loader(files, 64, 3, builder=Mosaic(6), collate=list, shuffle=True, **options) as loader:
            runs.append([(batch.targets, int(batch.images.long().sum())) for batch in loader])
    assert runs[0] == runs[1] == runs[2]
    assert all(len(images) == 4 for targets, _ in runs[0] for images, _ in targets)


def test_transform_gets_image_index_and_generator(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 4)
    (before,), (after,) = Loader(files, 32, 4), Loader(files, 32, 4, builder=TransformedSamples(darken))
    assert after.targets == (0, 10, 20, 30)
    assert (after.images.float() < before.images.float() * 0.51 + 1).all()


def test_transform_with_another_dtype_is_rejected(tmp_path: Path) -> None:
    builder = TransformedSamples(lambda image, index, rng: image.astype(np.float32))
    with pytest.raises(UsageError, match=r"float32 of shape \(32, 32, 3\) instead of uint8"):
        list(Loader(save_photos(tmp_path, 1), 32, 1, builder=builder))


@pytest.mark.parametrize(
    "options",
    [{"threads": 3}, pytest.param({"options": FORKED}, marks=pytest.mark.medium)],
    ids=["threads", "fork"],
)
def test_error_in_a_transform_is_raised_where_its_batch_is_consumed(tmp_path: Path, options: dict[str, Any]) -> None:
    consumed: list[list[int]] = []
    with Loader(save_photos(tmp_path, 9), 32, 2, builder=TransformedSamples(fail_on_5), **options) as loader:
        with pytest.raises(ZeroDivisionError, match="a mistake in the transform"):
            consumed.extend(batch.indices.tolist() for batch in loader)
        assert consumed == [[0, 1], [2, 3]]


def test_deleted_and_damaged_files_are_replaced_by_the_next_sample(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 8)
    runs = []
    for threads in (1, 4):
        loader = Loader(files, 32, 2, threads=threads)
        contents = Path(files[3]).read_bytes(), Path(files[6]).read_bytes()
        Path(files[3]).unlink()
        Path(files[6]).write_bytes(contents[1][: len(contents[1]) // 2])
        runs.append(samples(loader))
        reasons = {Path(skipped.path).name: skipped.reason for skipped in loader.skipped()}
        assert reasons.keys() == {"photo003.jpg", "photo006.jpg"}
        assert "was deleted" in reasons["photo003.jpg"]
        Path(files[3]).write_bytes(contents[0])
        Path(files[6]).write_bytes(contents[1])
    assert runs[0] == runs[1] == [0, 1, 2, 4, 4, 5, 7, 7]


def test_sample_with_an_unusable_image_is_replaced_as_a_whole(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 6)
    runs = []
    for threads in (1, 4):
        loader = Loader(files, 64, 3, builder=Mosaic(6), collate=list, threads=threads)
        hidden = Path(files[4]).rename(tmp_path / "hidden")
        runs.append([(batch.indices.tolist(), batch.targets) for batch in loader])
        assert [Path(skipped.path).name for skipped in loader.skipped()] == ["photo004.jpg"]
        hidden.rename(files[4])
    assert runs[0] == runs[1]
    mosaics = [images for _, targets in runs[0] for images, _ in targets]
    assert len(mosaics) == 6
    assert not any(4 in images for images in mosaics)


def test_unusable_samples_may_be_dropped(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 6)
    loader = Loader(files, 32, 2, on_error="drop")
    for number in (2, 3, 5):
        Path(files[number]).unlink()
    batches = list(loader)
    assert [batch.indices.tolist() for batch in batches] == [[0, 1], [4]]
    assert [len(batch.targets) for batch in batches] == [2, 1]


def test_nothing_to_load_is_an_error(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 3)
    loader = Loader(files, 32, 2)
    for file in files:
        Path(file).unlink()
    with pytest.raises(OomphError, match="every sample was skipped"):
        list(loader)
    with pytest.raises(UsageError, match=r"none of the 3 files can be used; first reason: .*No such file"):
        Loader(files, 32, 2)
    with pytest.raises(UsageError, match="there are no images"):
        Loader([], 32, 2)


def test_images_above_the_budget_are_skipped_by_their_headers(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 3)
    for name, options in (("huge.png", {}), ("progressive.jpg", {"progressive": True}), ("baseline.jpg", {})):
        Image.new("RGB", (64, 64)).save(tmp_path / name, **options)  # type: ignore[arg-type]
        overwrite_size(tmp_path / name, 20000, 20000)
        files.append(str(tmp_path / name))
    loader = Loader(files, 640, 2, budget="256MB")
    assert [Path(skipped.path).name for skipped in loader.skipped()] == ["huge.png", "progressive.jpg"]
    assert all("more than the budget of 240 MiB" in skipped.reason for skipped in loader.skipped())


@pytest.mark.medium
def test_admitted_bytes_stay_within_the_budget(tmp_path: Path) -> None:
    files = []
    for number in range(6):
        Image.effect_noise((800, 600), 50).save(tmp_path / f"{number}.png")
        files.append(str(tmp_path / f"{number}.png"))
    loader = Loader(files, 64, 2, budget="20MB", threads=8)
    assert len(samples(loader)) == 6
    assert 0 < loader.report().measured.decoding <= 20_000_000


@pytest.mark.medium
def test_memory_of_the_process_stays_within_the_budget(tmp_path: Path) -> None:
    pixels = np.tile(scene(500, 400), (5, 5, 1))
    Image.fromarray(pixels).save(tmp_path / "large.png", compress_level=1)
    Image.fromarray(pixels).save(tmp_path / "progressive.jpg", progressive=True)
    code = script(
        f"""
        import threading
        files = [f"{tmp_path}/{{name}}" for name in ("large.png", "large.png", "large.png", "progressive.jpg")] * 3
        loader = Loader(files, 64, 2, budget=100_000_000, threads=6)

        def pss():
            lines = open("/proc/self/smaps_rollup").read().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))

        before = peak = pss()
        def watch():
            global peak
            while watching:
                peak = max(peak, pss())
                time.sleep(0.002)
        watching = True
        watcher = threading.Thread(target=watch)
        watcher.start()
        count = sum(len(batch.indices) for batch in loader)
        watching = False
        watcher.join()
        report = loader.report()
        print(count, peak - before, report.measured.process, report.plan.peak)
        """
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    count, growth, measured, predicted = (int(word) for word in output.split())
    assert count == 12
    assert 20_000_000 < growth < 100_000_000
    assert growth * 0.8 < measured < predicted < 110_000_000


def test_waiting_and_memory_of_a_slow_builder(tmp_path: Path) -> None:
    builder = TransformedSamples(sleep_20_ms)
    loader = Loader(save_photos(tmp_path, 4), 64, 2, budget="50MB", builder=builder, threads=1)
    list(loader)
    assert loader.waited > 0.05
    assert loader.plan.memory.decoding == 50_000_000  # a builder may request anything
    assert loader.plan.memory.batches == 4 * 2 * 64 * 64 * 3


class RectangularSampler:
    """Batches of different sizes, as for validation."""

    largest = BatchSpec(np.zeros(3, np.int64), 96, 64)

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        del number
        return [BatchSpec(np.array([0, 1, 2]), 96, 32), BatchSpec(np.array([4]), 64, 64)]


def test_sampler_may_give_batches_of_any_size(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 5), sampler=RectangularSampler())
    assert [tuple(batch.images.shape) for batch in loader] == [(3, 3, 32, 96), (1, 3, 64, 64)]
    assert len(loader) == 2


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("oomph-data")]


@pytest.mark.medium
def test_unfinished_pass_leaves_no_thread_behind(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 20), 32, 2, threads=4)
    for _ in loader:
        break
    gc.collect()
    assert not loader_threads()
    iterator = iter(loader)
    next(iterator)
    assert loader_threads()
    next(iter(loader))  # a new pass ends the old one
    assert list(iterator) == []
    loader.close()
    assert not loader_threads()


@pytest.mark.medium
def test_old_iterator_does_not_disturb_a_new_pass(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 8), 32, 2, threads=2)
    old = iter(loader)
    next(old)
    new = iter(loader)
    collected = [next(new).indices.tolist()]
    del old
    gc.collect()
    collected += [batch.indices.tolist() for batch in new]
    assert collected == [[0, 1], [2, 3], [4, 5], [6, 7]]


def script(body: str) -> str:
    return "import sys, time\nfrom oomph.data import Loader\n" + textwrap.dedent(body)


@pytest.mark.medium
def test_ctrl_c_ends_the_program_despite_an_unfinished_pass(tmp_path: Path) -> None:
    code = script(
        f"""
        from oomph.data import TransformedSamples
        def slow(image, index, rng):
            time.sleep(0.05)
            return image
        files = {save_photos(tmp_path, 1)!r} * 1000
        unfinished = iter(Loader(files, 64, 2))
        next(unfinished)
        loader = Loader(files, 64, 2, builder=TransformedSamples(slow), threads=2)
        print("started", flush=True)
        for batch in loader:
            pass
        """
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert child.returncode != 0


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"size": 0}, {"threads": 0}, {"on_error": "ignore"}, {"shard": Shard(1)}], ids=str
)
def test_invalid_arguments_are_rejected(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Loader(save_photos(tmp_path, 1), **options)
