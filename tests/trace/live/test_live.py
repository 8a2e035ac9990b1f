from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype
from torch.utils.checkpoint import checkpoint

from oomph.trace import CudaDevice, EmulatedDevice, StorageKind, Trace, trace_program
from oomph.trace.live import LiveTrace

GIB = 2**30
DEVICE = EmulatedDevice(CudaDevice(), "Test GPU", 24 * GIB)


class Ended(BaseException):
    """The last step was recorded."""


def end() -> None:
    raise Ended


@contextmanager
def running(steps: int = 3) -> Iterator[LiveTrace]:
    live = trace_program(DEVICE, steps, end)
    with live.running():
        yield live


def traced(program: Callable[[], None]) -> Trace:
    """Trace a program that trains forever."""
    live = trace_program(DEVICE, 3, end)
    with pytest.raises(Ended), live.running():
        program()
    return live.trace()


def live_bytes(trace: Trace, kind: StorageKind) -> int:
    """Return the bytes of a kind that are never freed."""
    freed = {-event - 1 for event in trace.events if event < 0}
    return sum(s.size for index, s in enumerate(trace.storages) if s.kind is kind and index not in freed)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    while True:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def test_tensors_move_between_host_and_device() -> None:
    with running():
        x = torch.tensor([1.0, 2.0])
        moved = x.to("cuda", torch.float16)
        assert not isinstance(x, FakeTensor)
        assert isinstance(moved, FakeTensor)
        assert moved.dtype is torch.float16
        assert moved.device == torch.device("cuda:0")
        assert moved.is_cuda
        assert not x.is_cuda
        assert (moved + 1).device.type == "cuda"
        for back in (moved.cpu(), moved.to("cpu"), moved.to(x)):
            assert not isinstance(back, FakeTensor)
            assert back.shape == (2,)
        assert x.cuda().to(x.device) is not None
        assert x.to(0).is_cuda
        assert next(nn.Linear(2, 2).to(0).parameters()).is_cuda
        assert next(nn.Linear(2, 2).to(device=0, dtype=torch.float16).parameters()).dtype is torch.float16
        assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "create",
    [
        lambda: torch.zeros(3, device="cuda"),
        lambda: torch.randn(3, device=torch.device("cuda", 0)),
        lambda: torch.tensor([1, 2, 3], device="cuda:0"),
        lambda: torch.zeros(3).new_ones(3, device="cuda"),
        lambda: torch.zeros_like(torch.ones(3), device="cuda"),
        lambda: torch.cuda.FloatTensor(3),  # type: ignore[attr-defined]
        lambda: torch.cuda.FloatTensor([1.0, 2.0, 3.0]),  # type: ignore[attr-defined]
        lambda: torch.zeros(3).type(torch.cuda.FloatTensor),  # type: ignore[attr-defined]
        lambda: torch.zeros(3).type("torch.cuda.FloatTensor"),
    ],
)
def test_tensors_are_created_on_the_device(create: Callable[[], torch.Tensor]) -> None:
    with running() as live:
        x = create()
        assert isinstance(x, FakeTensor)
        assert x.shape == (3,)
        assert live.recorder.is_used


def test_default_device_is_followed() -> None:
    with running(), torch.device("cuda"):
        assert isinstance(nn.Linear(2, 2).weight, FakeTensor)


def test_values_that_are_read_are_assumed() -> None:
    with running():
        loss = torch.nn.Linear(4, 1).to("cuda")(torch.randn(2, 4, device="cuda")).sum()
        assert loss.item() == 0.5
        assert f"{loss:.2f}" == "0.50"
        assert loss.detach().cpu().numpy() == 0.5
        assert (loss * torch.ones(2, 2, device="cuda")).tolist() == [[0.5, 0.5], [0.5, 0.5]]
        assert bool(torch.isfinite(loss))


def test_data_on_the_host_stays_real() -> None:
    with running():
        order = torch.randperm(10)
        assert sorted(order.tolist()) == list(range(10))
        assert F.scaled_dot_product_attention(*torch.ones(3, 1, 2, 4, 8)).sum() == 64  # no kernel of CUDA


def test_optimizer_that_was_built_before_the_move_follows_it() -> None:
    def program() -> None:
        model = nn.Linear(64, 64, bias=False)
        optimizer = torch.optim.Adam(model.parameters())
        model.cuda()
        train(model, optimizer, torch.randn(2, 64, device="cuda"))

    trace = traced(program)
    assert live_bytes(trace, StorageKind.PARAMETER) == 64 * 64 * 4
    assert live_bytes(trace, StorageKind.STATE) == 2 * 64 * 64 * 4


def test_tied_parameters_stay_tied() -> None:
    with running():
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second.weight = first.weight
        model = nn.Sequential(first, second).to("cuda")
        assert first.weight is second.weight
        assert isinstance(first.weight, nn.Parameter)
        assert len(list(model.parameters())) == 3


def test_copied_model_is_on_the_device_too() -> None:
    with running() as live:
        model = nn.BatchNorm1d(128).cuda()
        average = copy.deepcopy(model)
        assert isinstance(average.weight, FakeTensor)
        assert isinstance(average.weight, nn.Parameter)
        average.weight.data.mul_(0.9).add_(model.weight.data, alpha=0.1)
        assert average(torch.randn(4, 128).cuda()).shape == (4, 128)
        trace = live.trace()
    assert sum(storage.size == 512 for storage in trace.storages) >= 8


def test_recurrent_weights_are_flattened() -> None:
    def program() -> None:
        model = nn.LSTM(8, 16).cuda()
        assert len({weight.untyped_storage()._cdata for weight in model.parameters()}) == 1
        optimizer = torch.optim.SGD(model.parameters())
        while True:
            model(torch.randn(5, 2, 8, device="cuda"))[0].sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert live_bytes(traced(program), StorageKind.PARAMETER) == 4 * (4 * 16 * (8 + 16 + 2))


def test_autocast_follows_the_rules_of_cuda_with_the_dtype_of_the_region() -> None:
    with running():
        layer, x = nn.Linear(4, 4).cuda(), torch.randn(2, 4, device="cuda")
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cuda", dtype=dtype):
                assert torch.is_autocast_enabled("cuda")
                y = layer(x)
                assert y.dtype is dtype
                assert F.layer_norm(y, (4,)).dtype is torch.float32  # bfloat16 on the CPU
        with torch.autocast("cuda"):
            assert layer(x).dtype is torch.float16


def test_gradients_are_clipped_on_the_device() -> None:
    with running():
        model = nn.Linear(8, 8).cuda()
        model(torch.randn(2, 8, device="cuda")).sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        assert list(_group_tensors_by_device_and_dtype([gradients])) == [(torch.device("cuda:0"), torch.float32)]
        assert isinstance(nn.utils.clip_grad_norm_(model.parameters(), 1.0), FakeTensor)


def test_checkpointed_block_runs_again_in_backward() -> None:
    def program(*, is_checkpointed: bool) -> None:
        block = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(8))).cuda()
        optimizer = torch.optim.SGD(block.parameters())
        while True:
            x = torch.randn(64, 256, device="cuda")
            y = checkpoint(block, x, use_reentrant=False) if is_checkpointed else block(x)
            y.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def activations(trace: Trace) -> int:
        return sum(s.size for s in trace.storages if s.kind is StorageKind.ACTIVATION)

    full, saved = (traced(lambda flag=flag: program(is_checkpointed=flag)) for flag in (False, True))  # type: ignore[misc]
    assert activations(saved) < activations(full) / 4


def test_second_derivative_is_traced() -> None:
    def program() -> None:
        critic = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).cuda()
        optimizer = torch.optim.Adam(critic.parameters())
        while True:
            x = torch.randn(4, 8, device="cuda", requires_grad=True)
            (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            optimizer.zero_grad()
            ((gradient.norm(2, dim=1) - 1) ** 2).mean().backward()
            optimizer.step()

    assert traced(program).training_events > 0


def test_critic_that_steps_more_often_is_waited_for() -> None:
    steps: list[str] = []

    def program() -> None:
        critic, generator = nn.Linear(4, 1).cuda(), nn.Linear(2, 4).cuda()
        optimizers = [torch.optim.Adam(model.parameters()) for model in (critic, generator)]
        while True:
            for index in (0, 0, 0, 1):
                critic(generator(torch.randn(8, 2, device="cuda"))).mean().backward()
                steps.append("critic" if index == 0 else "generator")
                optimizers[index].step()
                for optimizer in optimizers:
                    optimizer.zero_grad()

    assert traced(program).phase_starts[-1][1] == 2
    assert (steps.count("critic"), steps.count("generator")) == (9, 3)


def test_optimizer_that_never_steps_is_not_waited_for_forever() -> None:
    def program() -> None:
        model = nn.Linear(4, 1).cuda()
        unused = torch.optim.SGD(model.parameters())
        train(model, torch.optim.SGD(model.parameters()), torch.randn(2, 4).cuda())
        del unused

    assert traced(program).training_events > 0


def test_repeated_evaluations_are_traced_twice() -> None:
    calls = []

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            calls.append(x.shape)
            return {"y": x * 2}

    with running(), torch.inference_mode():
        model = Model().eval()
        outputs = [model(torch.zeros(n, device="cuda"))["y"].shape for n in (3, 3, 3, 3, 4)]
    assert outputs == [(3,)] * 4 + [(4,)]
    assert len(calls) == 3


def test_gpu_is_described_and_the_process_is_left_as_it_was() -> None:
    names = {
        torch.cuda: ("is_available", "device_count", "Stream", "manual_seed_all"),
        nn.Module: ("__call__", "_apply"),
        torch.autograd: ("backward", "grad"),
        torch: ("is_autocast_enabled", "inference_mode"),
        FakeTensor: ("device",),
        torch.optim.Optimizer: ("__init__",),
    }

    def values() -> list[Any]:
        return [owner.__dict__[name] for owner, attributes in names.items() for name in attributes]

    before = values()
    with running():
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_properties(0).total_memory == 24 * GIB
        assert torch.cuda.get_device_name() == "Test GPU"
        torch.cuda.manual_seed_all(0)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.synchronize()
        with torch.cuda.device(0):
            torch.cuda.empty_cache()
    assert values() == before
    assert not isinstance(nn.Linear(2, 2)(torch.ones(1, 2)), FakeTensor)


class Padded(nn.Module):
    """Needs more memory if something is padded, and behaves otherwise when a compiler traces it."""

    def __init__(self, imports: Any) -> None:
        super().__init__()
        self.layer, self.imports = nn.Linear(64, 64), imports

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y if not self.imports.is_fake_tensor(mask) and mask.all() else y.tanh()


@pytest.mark.parametrize("is_padded", [False, True])
def test_masks_of_the_batch_decide_as_in_training(*, is_padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = types.ModuleType("transformers.utils.import_utils")  # as transformers asks
    imports.is_fake_tensor = lambda x: isinstance(x, FakeTensor)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, imports.__name__, imports)

    def program() -> None:
        model = Padded(imports).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        mask = torch.ones(64, 64, dtype=torch.bool)
        mask[:, -1] = not is_padded
        while True:
            model(torch.randn(64, 64, device="cuda"), mask.cuda()).sum().backward()
            optimizer.step()

    trace = traced(program)
    assert any(storage.op == "aten.tanh.default" for storage in trace.storages) is is_padded
    assert trace.guesses == ()
