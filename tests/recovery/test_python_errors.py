"""Python itself runs out of memory: before or after each function that the guard calls for a snapshot or an update."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from oomph.recovery.snapshots import _object_snapshots, _snapshots
from oomph.recovery.snapshots._snapshots import Restore

from .faults import FailingCall
from .nets import NoisyNet, Rig, cloned, differences


@functools.cache
def undisturbed(micro_batches: tuple[int, ...]) -> dict[str, Any]:
    """Return the state after steps with these numbers of micro-batches and no error."""
    rig = Rig()
    for count, batch in zip(micro_batches, rig.batches(len(micro_batches)), strict=True):
        rig.guard.retry_policy._max_micro_batch = 8 // count
        rig.guard.step(batch)
    return cloned(rig.state())


CALLS: dict[str, tuple[Any, str]] = {
    "random states": (_snapshots.RngSnapshot, "capture"),
    "buffers": (_snapshots.BufferSnapshot, "capture"),
    "gradients": (_snapshots.GradStash, "capture"),
    "optimizer": (_snapshots.OptimizerSnapshot, "capture"),
    "objects": (_object_snapshots.ObjectSnapshot, "capture"),
    "clipping": (torch.nn.utils, "clip_grad_norm_"),
    "ema": (AveragedModel, "update_parameters"),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("after", [False, True])
def test_an_error_in_a_function_that_the_guard_calls(name: str, *, after: bool) -> None:
    owner, function = CALLS[name]
    for call in (1, 2):
        with pytest.MonkeyPatch.context() as monkeypatch:
            fail = FailingCall(getattr(owner, function), call, after=after)
            monkeypatch.setattr(owner, function, lambda *args, fail=fail, **kwargs: fail(*args, **kwargs))
            rig = Rig()
            micro_batches = [rig.guard.step(batch).micro_batches for batch in rig.batches(3)]
        assert fail.raised == 1
        assert differences(rig.state(), undisturbed(tuple(micro_batches))) == []


def failing_restore(capture: Callable[[Any], Restore], *, after: bool) -> tuple[Callable[[Any], Restore], list[int]]:
    """Return a capture with a first restore that runs out of memory, and the list of failures."""
    raised: list[int] = []

    def run(snapshot: Any) -> Restore:
        restore = capture(snapshot)

        def fail_once() -> None:
            if not raised:
                raised.append(1)
                if after:
                    restore()
                raise MemoryError
            restore()

        return fail_once

    return run, raised


IN_FORWARD = ("RngSnapshot", "BufferSnapshot", "GradStash")


@pytest.mark.parametrize("name", [*IN_FORWARD, "ObjectSnapshot", "OptimizerSnapshot"])
@pytest.mark.parametrize("after", [False, True])
def test_an_error_during_a_restore(name: str, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The first error is in the forward or in the update, so that every snapshot has something to restore."""
    snapshot = getattr(_object_snapshots if name == "ObjectSnapshot" else _snapshots, name)
    capture, raised = failing_restore(snapshot.capture, after=after)
    monkeypatch.setattr(snapshot, "capture", capture)
    owner, method = (NoisyNet, "forward") if name in IN_FORWARD else (AveragedModel, "update_parameters")
    fail = FailingCall(getattr(owner, method), 2, after=True)
    monkeypatch.setattr(owner, method, lambda *args: fail(*args))  # noqa: PLW0108  a method, which `fail` is not
    rig = Rig()
    reports = [rig.guard.step(batch) for batch in rig.batches(2)]
    assert [report.retries for report in reports] == [0, 1]
    assert raised == [1]
    assert differences(rig.state(), undisturbed((1, reports[1].micro_batches))) == []
