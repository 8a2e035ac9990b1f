"""A whole training run, small: plan, guard, checkpoints, resume, results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import oomph
from oomph.detect import (
    EmbeddedRun,
    EmbeddedSize,
    OrderForm,
    Outcome,
    Suppression,
    evaluate_weights,
    find_objects,
    read_weights,
    train,
    write_embedded,
)
from oomph.detect.training._train import settled
from oomph.detect.training._trainer import Course
from oomph.planner import Plan
from oomph.settings import Settings
from oomph.units import MIB


class Quiet:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.counts: dict[str, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.steps = 0

    def said(self, words: str) -> None:
        self.words.append(words)

    def counted(self, what: str, done: int, total: int | None) -> None:
        del total
        self.counts[what] = done

    def planned(self, made: Plan) -> None:
        self.plan = made

    def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
        del epoch, done, total, facts
        self.steps += 1

    def ended_epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)


class UpTo(Quiet):
    """Ends the run with a sentence that has these words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def said(self, words: str) -> None:
        if self._words in words:
            raise StopIteration(words)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_embedded(tmp_path_factory.mktemp("data"), EmbeddedSize(train=24, val=8))


def form(data: Path, folder: Path, **changes: Any) -> OrderForm:
    usual = {
        "network": "n",
        "size": 64,
        "batch": 8,
        "epochs": 2,
        "recipe": replace(EmbeddedRun().recipe, nominal_batch=8),
        "device": "cpu",
        "threads": 1,
    }
    return OrderForm(data=data, folder=folder, **{**usual, **changes})


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("runs") / "one"
    return train(form(data, folder), Quiet()), folder


def test_a_run_leaves_everything_behind(undisturbed: tuple[Outcome, Path]) -> None:
    done, folder = undisturbed
    assert done.epochs == 2
    names = {path.name for path in folder.iterdir()}
    assert names >= {"results.csv", "record.jsonl", "plan.json", "train_batch.png", "loss.png", "map.png", "weights"}
    assert names >= {"memory.png", "val_predictions.png"}
    assert (folder / "results.csv").read_text().count("\n") == 3
    assert done.best is not None
    assert done.best["epoch"] == done.kept  # the first of equals, in the report as in the file
    weights = read_weights(folder / "weights" / "last.pt")
    assert (weights.size, weights.classes, weights.names) == ("n", 4, EmbeddedRun().names)
    record = oomph.Record.load(folder / "record.jsonl")
    assert len(record.steps) == 6


def test_weights_can_be_scored_and_used(data: Path, undisturbed: tuple[Outcome, Path], tmp_path: Path) -> None:
    _, folder = undisturbed
    last = folder / "weights" / "last.pt"
    scores = evaluate_weights(last, data, "val", 64, 4, "cpu")
    assert scores.images == 8
    images = data.parent / "images" / "val"
    (tmp_path / "broken.png").write_bytes(b"no image")
    found = find_objects(last, images, tmp_path / "out", size=64, limits=Suppression(0.001, 0.5), device="cpu")
    assert len(found.images) == 8
    assert len(list((tmp_path / "out").glob("*.jpg"))) == 8
    with pytest.raises(oomph.UsageError, match="none of the images"):
        find_objects(
            last, tmp_path / "broken.png", tmp_path / "more", size=64, limits=Suppression(0.3, 0.5), device="cpu"
        )


def learned(folder: Path) -> list[list[str]]:
    """What results.csv says of losses and scores."""
    return [line.split(",")[:9] for line in (folder / "results.csv").read_text().splitlines()]


def test_losses_are_the_means_of_their_epoch(undisturbed: tuple[Outcome, Path]) -> None:
    head, *rows = learned(undisturbed[1])
    assert head[:5] == ["epoch", "loss", "box", "objectness", "classes"]
    for row in rows:
        whole, *parts = map(float, row[1:5])
        assert whole == pytest.approx(sum(parts), rel=1e-5)
        assert min(parts) > 0


def test_a_killed_run_goes_on_bit_for_bit(data: Path, undisturbed: tuple[Outcome, Path], tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_course import Quiet, form
from oomph.detect import train
class Loud(Quiet):
    def stepped(self, epoch, done, total, facts):
        print("step", epoch * total + done, flush=True)
train(form(Path({str(data)!r}), Path({str(tmp_path / "run")!r}), minutes=0.0), Loud())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "step 5":  # in the middle of the second epoch
                os.kill(process.pid, signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
    teller = Quiet()
    train(form(data, tmp_path / "run"), teller, resume=True)
    assert learned(tmp_path / "run") == learned(undisturbed[1])
    assert any(words.startswith("resumed at iteration") for words in teller.words)
    assert 0 < teller.steps < 6
    ours = read_weights(tmp_path / "run" / "weights" / "last.pt").state
    theirs = read_weights(undisturbed[1] / "weights" / "last.pt").state
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_batches_on_their_way_are_not_trained_yet(
    data: Path, undisturbed: tuple[Outcome, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ahead(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
        """As beside a GPU: a batch is taken from the loader while the one before is in use."""
        del device
        source = iter(batches)
        held = next(source)
        for batch in source:
            yield held
            held = batch
        yield held

    class Stopped(Quiet):
        def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
            super().stepped(epoch, done, total, facts)
            if self.steps == 5:  # in the middle of the second epoch, when four steps were saved
                raise EOFError

    monkeypatch.setattr("oomph.detect.training._trainer.prefetch_to_device", ahead)
    with pytest.raises(EOFError):
        train(form(data, tmp_path / "run", minutes=0.0), Stopped())
    assert (tmp_path / "run" / "val_predictions.png").is_file()  # of the best epoch, however the run ends
    assert (tmp_path / "run" / "predictions.npz").is_file()
    train(form(data, tmp_path / "run"), Quiet(), resume=True)
    ours = read_weights(tmp_path / "run" / "weights" / "last.pt").state
    theirs = read_weights(undisturbed[1] / "weights" / "last.pt").state
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_that_is_stopped_at_the_end_of_an_epoch_still_has_its_row(
    data: Path, undisturbed: tuple[Outcome, Path], tmp_path: Path
) -> None:
    class Stopped(Quiet):
        def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
            super().stepped(epoch, done, total, facts)
            if done == total - 1:
                os.kill(os.getpid(), signal.SIGINT)  # the next step is finished, and nothing after it

    with pytest.raises(KeyboardInterrupt):
        train(form(data, tmp_path / "run"), Stopped())
    assert not (tmp_path / "run" / "results.csv").exists()
    done = train(form(data, tmp_path / "run"), Quiet(), resume=True)
    assert learned(tmp_path / "run") == learned(undisturbed[1])
    assert done.best is not None
    assert (done.best["epoch"], done.best["micro_batches"], done.epochs) == (1, None, 2)
    again = Quiet()
    train(form(data, tmp_path / "run"), again, resume=True)
    assert "nothing is left to train of 2 epochs" in again.words
    assert again.steps == 0
    assert again.counts["plan: settings predicted"] >= 1
    assert [again.counts[f"{name}: headers of images"] for name in ("train", "val")] == [24, 8]
    assert learned(tmp_path / "run") == learned(undisturbed[1])


def test_a_budget_splits_the_batch_and_keeps_the_optimizer_s_steps(data: Path, tmp_path: Path) -> None:
    teller = Quiet()
    done = train(form(data, tmp_path / "run", size=128, epochs=1, spare=275 * MIB), teller)
    assert len(done.plan.settings.micro_batch_sizes) > 1
    assert done.plan.settings.batch == 8
    assert teller.rows[0]["micro_batches"] > 1


def test_blocks_run_again_where_pieces_do_not_help_and_memory_is_as_predicted(tmp_path: Path) -> None:
    """In a process of its own, whose memory is that of this run alone."""
    code = f"""
import gc, json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_course import Quiet, form
from oomph.detect import EmbeddedSize, Yolov5, train, write_embedded
from oomph.units import MIB
class Looks(Quiet):
    def stepped(self, *told):
        nets = [one for one in gc.get_objects() if type(one) is Yolov5]
        self.changed = sorted(sum("forward" in vars(layer) for layer in net.model) for net in nets)
teller = Looks()
data = write_embedded(Path("data"), EmbeddedSize(train=4, val=2))
done = train(form(data, Path("run"), size=512, batch=2, epochs=1, spare=440 * MIB), teller)
print(json.dumps([done.plan.settings.checkpointing, teller.changed, done.predicted, done.measured]))
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path, check=True)
    checkpointing, changed, predicted, measured = json.loads(done.stdout)
    assert checkpointing == "blocks"
    assert changed[0] == 0  # the average
    assert changed[-1] > 5  # the network
    assert 0.85 < measured / predicted < 1.1, "two steps make fewer holes than a long run"
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert (plan["requested"]["checkpointing"], plan["settings"]["checkpointing"]) == ("none", "blocks")
    assert plan["changes"][0]["cost"].startswith("About a third more time")


def test_what_was_planned_is_what_is_trained_and_resumed(tmp_path: Path) -> None:
    asked = form(tmp_path / "data.yaml", tmp_path, batch=-1, size=500, allow=("size", "precision"))
    chosen = Settings(batch=12, micro_batch=6, size=448, precision="amp-bf16", checkpointing="blocks")
    nothing: Any = None
    found = settled(asked, Plan(chosen, chosen, 0, nothing, nothing, ()))
    assert found == replace(asked, batch=12, size=448, precision="amp-bf16")


def test_validating_on_training_images_is_said(data: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.yaml"
    same.write_text(data.read_text().replace("path: .", f"path: {data.parent}").replace("images/val", "images/train"))
    with pytest.raises(StopIteration, match="24 of 24 val images are train images too: the mAP means nothing"):
        train(form(same, tmp_path / "run"), UpTo("the mAP means"))


def test_nothing_fits_into_next_to_nothing(data: Path, tmp_path: Path) -> None:
    with pytest.raises(oomph.CannotFit, match="the budget is"):
        train(form(data, tmp_path / "run", budget=100 * MIB), Quiet())


def test_a_stop_is_saved_first(data: Path, tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_course import Quiet, form
from oomph.detect import train
class Loud(Quiet):
    def stepped(self, epoch, done, total, facts):
        print("step", flush=True)
train(form(Path({str(data)!r}), Path({str(tmp_path / "run")!r}), epochs=50), Loud())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "run" / "weights" / "state.pt").is_file()


def test_a_resumed_run_wants_the_classes_and_images_that_it_was_begun_with(
    data: Path, undisturbed: tuple[Outcome, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(undisturbed[1], tmp_path / "run")
    text = data.read_text().replace("path: .", f"path: {data.parent}")
    other = tmp_path / "other.yaml"
    other.write_text(text + "  4: star\n")
    with pytest.raises(oomph.UsageError, match=r"begun with: 5 .*star.* and not 4 \(disc, square, triangle, cross\)"):
        train(form(other, folder), Quiet(), resume=True)
    other.write_text(text.replace("train: images/train", "train: [images/train, images/val]"))
    with pytest.raises(oomph.UsageError, match=r"not those .* \(32 now, 24 then\); put them back"):
        train(form(other, folder), Quiet(), resume=True)


@pytest.mark.parametrize(("update", "fused"), [("fused", True), ("given", None)])
def test_a_resumed_run_updates_weights_as_it_is_planned_now(
    data: Path,
    undisturbed: tuple[Outcome, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    update: str,
    fused: bool | None,  # noqa: FBT001  torch's word
) -> None:
    seen: list[Any] = []

    class Watched(Course):
        def run(self) -> Outcome:
            seen.extend(group["fused"] for group in self.optimizer.param_groups)
            return super().run()

    monkeypatch.setattr("oomph.detect.training._train.Course", Watched)
    monkeypatch.setattr("oomph.detect.training._planning._update", lambda *_: update)
    folder = shutil.copytree(undisturbed[1], tmp_path / "run")
    train(form(data, folder), Quiet(), resume=True)
    assert seen == [fused] * 3


@pytest.mark.parametrize("changes", [{"batch": 0}, {"freeze": 25}, {"epochs": 0}, {"size": 8}, {"network": "q"}])
def test_a_wrong_order_is_refused(data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(oomph.UsageError):
        form(data, tmp_path, **changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(oomph.UsageError, match="no GPU"):
        train(form(data, tmp_path / "run", device="cuda:1"), Quiet())
