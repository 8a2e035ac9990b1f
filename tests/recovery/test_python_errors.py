"""Memory that runs short in Python itself: in each thing that the guard calls or keeps, before it or after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from oomph.recovery import _keepers, _randomness, _update

from .nets import Rig, differences


class Short:
    """A function that runs short once, at its n-th call, before or after its work."""

    def __init__(self, function: Callable[..., Any], at: int, *, after: bool) -> None:
        self.function, self.at, self.after = function, at, after
        self.calls = self.raised = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls != self.at:
            return self.function(*args, **kwargs)
        self.raised += 1
        if self.after:
            self.function(*args, **kwargs)
        raise MemoryError


@functools.cache
def undisturbed(pieces: tuple[int, ...]) -> dict[str, Any]:
    """The state after steps in given numbers of pieces, with nothing going wrong."""
    rig = Rig()
    for count, batch in zip(pieces, rig.batches(len(pieces)), strict=True):
        rig.guard.ladder._forced = count
        rig.guard.step(batch)
    return rig.state()


POINTS: dict[str, tuple[Any, str]] = {
    "random states": (_randomness.Randomness, "take"),
    "buffers": (_keepers.Buffers, "take"),
    "gradients aside": (_keepers.Gradients, "take"),
    "optimizer's copy": (_keepers.OptimizerState, "take"),
    "objects": (_keepers.ObjectState, "take"),
    "clipping": (torch.nn.utils, "clip_grad_norm_"),
    "average": (_update, "_no_grad"),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("after", [False, True])
def test_a_fault_in_python(point: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    home, name = POINTS[point]
    for at in (1, 2):
        rig = Rig()
        with monkeypatch.context() as patch:
            short = Short(getattr(home, name), at, after=after)
            patch.setattr(home, name, lambda *args, short=short, **kwargs: short(*args, **kwargs))
            pieces = [rig.guard.step(batch).pieces for batch in rig.batches(3)]
        assert short.raised == 1
        assert differences(rig.state(), undisturbed(tuple(pieces))) == []


@pytest.mark.parametrize("name", ["Randomness", "Buffers", "Gradients", "ObjectState", "OptimizerState"])
@pytest.mark.parametrize("after", [False, True])
def test_a_fault_while_putting_back(name: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """The first fault is in the update, so that all keepers have something to put back."""
    truth = Rig()
    for batch in truth.batches(2):
        truth.guard.step(batch)
    rig = Rig(pieces=1)
    batches = rig.batches(2)
    rig.guard.step(batches[0])
    keeper = getattr(_randomness if name == "Randomness" else _keepers, name)
    back = Short(keeper.put_back, 1, after=after)
    monkeypatch.setattr(keeper, "put_back", lambda self: back(self))  # noqa: PLW0108  a method, which back is not
    fault = Short(rig.ema.update_parameters, 1, after=True)
    rig.guard._update._average = lambda: fault(rig.net)
    report = rig.guard.step(batches[1])
    assert report.retries == 1
    if name in {"ObjectState", "OptimizerState"}:
        assert back.raised == 1
    assert differences(rig.state(), truth.state()) == []
