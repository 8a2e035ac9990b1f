"""Copies of many tensors: put back as they were, whatever their layout, and few blocks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oomph.errors import OomphError
from oomph.recovery import _copies
from oomph.recovery._copies import Copies, record

from .faults import CUDA, FaultIn

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


def make(kind: int, dtype: torch.dtype) -> Tensor:
    """A tensor of some layout: plain, a scalar, channels_last, empty, with holes, a sparse one."""
    made: list[Tensor] = [
        torch.randint(0, 2, (2, 3, 4, 5)).to(dtype),
        torch.tensor(1).to(dtype),
        torch.randint(0, 2, (2, 3, 4, 5)).to(dtype).contiguous(memory_format=torch.channels_last),
        torch.zeros(0, 3, dtype=dtype),
        torch.randint(0, 2, (4, 6)).to(dtype)[:, ::2],
        torch.eye(3).to(dtype).to_sparse(),
    ]
    return made[kind]


def flip(tensor: Tensor) -> None:
    """Change every value."""
    if tensor.is_sparse:
        tensor.mul_(0)
    else:
        tensor.copy_(~tensor if tensor.dtype is torch.bool else tensor + 1)


@pytest.fixture(params=[False, True], ids=["new blocks", "blocks that stay"])
def _stay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_copies, "_is_kept", lambda _: request.param)


@pytest.mark.usefixtures("_stay")
@pytest.mark.parametrize("host", [False, True])
def test_they_are_put_back_as_often_as_asked(*, host: bool) -> None:
    @given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(DTYPES[:3])), min_size=1, max_size=8))
    def run(kinds: list[tuple[int, torch.dtype]]) -> None:
        tensors, copies = [make(*kind) for kind in kinds], Copies()
        for _ in range(3):
            copies.take(tensors, host=host)
            before = [tensor.clone() for tensor in tensors]
            assert not copies.differ()
            for _ in range(2):
                for tensor in tensors:
                    flip(tensor)
                copies.put_back()
                assert all(map(torch.equal, _dense(tensors), _dense(before)))
            copies.let_go()
            for tensor in tensors:  # what is taken next is something else
                flip(tensor)

    run()


@pytest.mark.parametrize("host", [False, True])
def test_they_tell_what_was_changed(*, host: bool) -> None:
    for kind in (0, 1, 2, 4, 5):
        for dtype in DTYPES[:3]:
            tensors, copies = [torch.full((2,), float("nan")), make(kind, dtype)], Copies()
            copies.take(tensors, host=host)
            assert not copies.differ()
            flip(tensors[1])
            assert copies.differ()


def _dense(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors]


@pytest.mark.usefixtures("_stay")
def test_a_copy_that_ran_short_is_made_on_the_host() -> None:
    tensors, copies = [torch.arange(5.0), torch.ones(2, 2)], Copies()
    for name in ("cat", "_foreach_copy_"):
        copies.take(tensors)  # so that a block may be there already
        copies.let_go()
        tensors[0] += 1
        with FaultIn(name) as mode:
            try:
                copies.take(tensors)
            except torch.OutOfMemoryError:
                assert name == "_foreach_copy_"  # the host's copy is made with it too
                continue
        expected = tensors[0].clone()
        tensors[0].zero_()
        copies.put_back()
        assert torch.equal(tensors[0], expected)
        assert mode.raised <= 1


def test_blocks_stay_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.arange(5.0), torch.ones(2, 2), torch.ones(3, dtype=torch.float64)]
    for stays in (True, False):
        monkeypatch.setattr(_copies, "_is_kept", lambda _, stays=stays: stays)
        copies = Copies()
        places = []
        for _ in range(2):
            copies.take(tensors)
            blocks = [group._block for group in copies._groups]
            assert len(blocks) == 2  # one for each type
            places.append([block.data_ptr() for block in blocks if block is not None])
            del blocks
            copies.let_go()
        assert (places[0] == places[1]) or not stays
        assert all((group._block is not None) == stays for group in copies._groups)


def test_a_copy_on_the_cpu_does_not_stay() -> None:
    assert not _copies._is_kept([torch.ones(3)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="blocks stay on a GPU")
def test_small_copies_stay_on_a_gpu() -> None:
    small, large = torch.ones(1000, device="cuda"), torch.ones(2 << 20, device="cuda")
    assert _copies._is_kept([small])
    assert not _copies._is_kept([small, large])
    copies = Copies()
    for value in (1.0, 2.0):
        small.fill_(value)
        copies.take([small, large])
        small.zero_()
        large.zero_()
        copies.put_back()
        assert small.unique().tolist() == [value]
        assert large.unique().tolist() == [1.0]
        copies.let_go()
    held = torch.cuda.memory_allocated()
    copies.take([small, large])
    copies.let_go()
    assert torch.cuda.memory_allocated() == held


def test_tensors_that_moved_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_copies, "_is_kept", lambda _: True)
    parameter, copies = torch.nn.Parameter(torch.ones(4)), Copies()
    copies.take([parameter])
    copies.let_go()
    parameter.data = torch.full((4,), 5.0)
    copies.take([parameter])
    parameter.data.zero_()
    copies.put_back()
    assert parameter.tolist() == [5.0] * 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU can be told once")
def test_the_copying_of_many_tensors_is_recorded() -> None:
    tensors, copies, drawn = many(), Copies(), []
    torch.cuda.manual_seed(0)
    for step in range(20):
        copies.take(tensors)
        assert (copies._recording is not None) == (step >= 2)
        drawn.append(torch.rand(1, device="cuda"))
        before = [tensor.clone() for tensor in tensors]
        for tensor in tensors:
            flip(tensor)
        copies.put_back()
        assert all(map(torch.equal, tensors, before))
        copies.let_go()
        for tensor in tensors:
            flip(tensor)
    copies.take(tensors, host=True)
    assert copies._recording is None
    assert not copies.differ()
    torch.cuda.manual_seed(0)
    assert torch.equal(torch.cat(drawn), torch.cat([torch.rand(1, device="cuda") for _ in range(20)]))


def many() -> list[Tensor]:
    return [torch.full((number % 5 + 1,), number, device="cuda", dtype=torch.float32) for number in range(40)] + [
        torch.tensor(number, device="cuda") for number in range(40)
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU can be told once")
def test_a_tensor_that_is_moved_is_found_soon_and_never_put_back_wrongly() -> None:
    tensors, copies = many(), Copies()
    for _ in range(5):
        copies.take(tensors)
    tensors[3].data = tensors[3].data + 1  # elsewhere
    refused = 0
    for _ in range(40):
        copies.take(tensors)
        before = [tensor.clone() for tensor in tensors]
        for tensor in tensors:
            flip(tensor)
        try:
            copies.put_back()
        except OomphError:
            refused += 1
        else:
            assert all(map(torch.equal, tensors, before))
    assert 0 < refused < 32
    assert copies._recording is None  # who moves tensors may do it again


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU can be told once")
def test_what_waits_for_a_gpu_can_not_be_recorded() -> None:
    device, value = torch.device("cuda"), torch.ones(3, device="cuda")
    assert record(device, [value.sum().item]) is None
    assert value.sum().item() == 3, "and the GPU goes on"
    recording = record(device, [lambda: value.add_(1)])
    assert recording is not None
    assert value.tolist() == [1, 1, 1]
    recording.replay()
    assert value.tolist() == [2, 2, 2]


class Recording:
    """A recording that does by itself what a GPU is told."""

    def __init__(self, works: Sequence[Callable[[], object]]) -> None:
        self.works, self.short, self.told = works, False, 0

    def replay(self) -> None:
        if self.short:
            raise torch.OutOfMemoryError(CUDA)
        self.told += 1
        for work in self.works:
            work()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """Recordings that were made, on the CPU; blocks stay."""
    found: list[Recording] = []

    def record(_: torch.device, works: Sequence[Callable[[], object]]) -> Recording:
        found.append(Recording(works))
        return found[-1]

    monkeypatch.setattr(_copies, "record", record)
    monkeypatch.setattr(_copies, "_is_kept", lambda _: True)
    return found


def check(copies: Copies, tensors: list[Tensor]) -> None:
    """Take, change, put back; and change again."""
    copies.take(tensors)
    before = [tensor.clone() for tensor in tensors]
    for tensor in tensors:
        flip(tensor)
    copies.put_back()
    assert all(map(torch.equal, tensors, before))
    for tensor in tensors:
        flip(tensor)


def test_a_recording_is_used_until_it_runs_short(made: list[Recording]) -> None:
    tensors, copies = [torch.full((3,), float(number)) for number in range(40)], Copies()
    for _ in range(10):
        check(copies, tensors)
    assert [one.told for one in made] == [7]
    made[0].short = True
    for _ in range(3):
        check(copies, tensors)
    assert made[0].told == 7
    few = Copies()
    for _ in range(10):
        check(few, tensors[:5])
    assert len(made) == 1  # of few tensors, none is made


def test_a_moved_tensor_ends_recordings_and_is_never_put_back_wrongly(made: list[Recording]) -> None:
    tensors, copies = [torch.full((3,), float(number)) for number in range(40)], Copies()
    for _ in range(5):
        check(copies, tensors)
    tensors[3].data = tensors[3].data.clone()
    done = 0
    for _ in range(40):
        with contextlib.suppress(OomphError):
            check(copies, tensors)
            done += 1
    assert 8 < done < 40
    assert len(made) == 1  # who moves tensors may do it again
