from __future__ import annotations

import pytest

from oomph.machine import find_target
from oomph.planner.changes import CHANGES, Change, Context, fast_precision, slow_precision, smaller_sizes
from oomph.settings import Settings

START = Settings(batch=64, size=640, allocator="default")
CONVOLUTIONS = Context(find_target("H200"), has_convolutions=True)
PLAIN = Context(find_target("H200"), has_convolutions=False)
CPU = Context(find_target("cpu"), has_convolutions=True)


def change_of(setting: str) -> Change:
    return next(change for change in CHANGES if change.setting == setting)


def improved(setting: str, context: Context, settings: Settings = START) -> list[object]:
    return [getattr(result, setting) for result in change_of(setting).improved(settings, context)]


def test_gpus_get_what_costs_nothing() -> None:
    assert improved("allocator", CONVOLUTIONS) == ["expandable"]
    assert improved("optimizer", CONVOLUTIONS) == ["fused"]
    assert improved("memory_format", CONVOLUTIONS) == ["channels_last"]
    assert improved("memory_format", PLAIN) == []
    assert improved("precision", CONVOLUTIONS) == ["amp-bf16"]


@pytest.mark.parametrize("setting", [change.setting for change in CHANGES])
def test_the_cpu_stays_as_it_is(setting: str) -> None:
    assert improved(setting, CPU) == []


def test_what_is_set_already_stays() -> None:
    done = Settings(
        batch=64, precision="amp-fp16", memory_format="channels_last", optimizer="8bit", allocator="expandable"
    )
    assert [change.improved(done, CONVOLUTIONS) for change in CHANGES] == [()] * len(CHANGES)


@pytest.mark.parametrize(
    ("gpu", "precision"), [("H200", "amp-bf16"), ("RTX 3060", "amp-bf16"), ("T4", "amp-fp16"), ("P100", None)]
)
def test_precision_follows_the_gpu(gpu: str, precision: str | None) -> None:
    assert fast_precision(find_target(gpu)) == precision


def test_mixed_precision_on_the_cpu_is_a_last_resort() -> None:
    assert [settings.precision for settings in slow_precision(START, CPU.target)] == ["amp-bf16"]
    assert slow_precision(START, PLAIN.target) == ()


def test_smaller_sizes_reach_half() -> None:
    sizes = [settings.size for settings in smaller_sizes(START)]
    assert sizes[0] == 608
    assert sizes[-1] == 320
    assert [settings.size for settings in smaller_sizes(Settings(batch=1, size=100))] == [96, 64, 32]
    assert smaller_sizes(Settings(batch=1, size=(640, 480))) == ()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"micro_batch": 22}, "the batch of 64 is split into 3 micro-batches of at most 22"),
        ({"checkpointing": ("model.0",)}, "1 module (model.0) is recomputed in the backward pass"),
        (
            {"checkpointing": tuple("abcdefgh")},
            "8 modules (a, b, c, d, e, f and 2 more) are recomputed in the backward pass",
        ),
        ({"checkpointing": "blocks"}, "the blocks of the network are recomputed in the backward pass"),
        ({"precision": "amp-bf16"}, "the precision is amp-bf16 instead of fp32"),
        ({"size": 608}, "the size is 608 instead of 640"),
        ({"memory_format": "channels_last"}, "the memory format is channels_last instead of contiguous"),
        ({"optimizer": "fused"}, "the optimizer's update is fused"),
        ({"optimizer": "8bit"}, "the optimizer's states have 8 bits"),
        ({"loss_chunks": 8}, "the cross entropy is computed in 8 chunks of rows"),
        ({"offload": ("a", "b")}, "activations of a, b are in pinned host memory until the backward pass"),
        ({"allocator": "expandable"}, "torch's allocator uses expandable segments"),
    ],
)
def test_sentences(changed: dict[str, object], text: str) -> None:
    after = Settings(**{**vars(START), **changed})
    (change,) = (change for change in CHANGES if change.is_in(START, after))
    what, cost = change.describe(START, after)
    assert what == text
    assert cost
    assert not cost.endswith(".")
    assert (change.permission is not None) == (
        bool(changed.keys() & {"precision", "size"}) or changed == {"optimizer": "8bit"}
    )
