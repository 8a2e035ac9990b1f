"""Code as people write it: moves, conversions, compiled parts, matchers, packed sequences, several optimizers."""

from __future__ import annotations

import copy
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import oomph
from oomph.errors import UsageError
from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import COMPILED, CpuDevice, CudaDevice, StorageKind, Trace, trace_step

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    SCRIPTED: Any = torch.jit.script(nn.Linear(16, 16))


def batch(count: int, _: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 16), torch.randn(count, 16)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1)


def job_of(**changes: Any) -> Job:
    parts: dict[str, Any] = {"model": net, "batch": batch, "loss": F.mse_loss, "optimizer": sgd}
    return Job(**{**parts, **changes})


def traced(job: Job, count: int = 4, size: int = 8, **settings: Any) -> Trace:
    return trace_step(job, Settings(batch=count, size=size, **settings), CudaDevice())


def weights(trace: Trace) -> list[int]:
    return sorted(storage.size for storage in trace.storages if storage.kind is StorageKind.PARAMETER)


def allocations(trace: Trace) -> list[tuple[str, int]]:
    return [(storage.op, storage.size) for storage in trace.storages]


def loaded() -> nn.Module:
    model, state = net(), {"0.weight": torch.zeros(16, 16)}
    model.load_state_dict(state, strict=False)
    return model


def assigned() -> nn.Module:
    model = net()
    model.load_state_dict(REAL_STATE, assign=True)
    return model


REAL_STATE = net().state_dict()


def on_default_device() -> nn.Module:
    with torch.device("cuda"):
        return net()


def on_meta() -> nn.Module:
    with torch.device("meta"):
        model = net()
    return model.to_empty(device="cuda")


def with_real_tensor() -> nn.Module:
    model = net()
    model.table = REAL_STATE["0.weight"]
    return model


@pytest.mark.parametrize(
    "build",
    [
        lambda: net().to("cuda"),
        lambda: net().cuda(),
        lambda: net().cuda(0),
        lambda: net().to(torch.device("cuda", 0)),
        lambda: net().to(device="cuda:0", non_blocking=True),
        lambda: net().float(),
        lambda: net().to(torch.float32, non_blocking=True),
        lambda: copy.deepcopy(net()),
        lambda: copy.deepcopy(net().cuda()),
        lambda: torch.compile(net()),
        loaded,
        assigned,
        on_default_device,
        on_meta,
        with_real_tensor,
    ],
)
def test_builder_may_move_copy_and_load(build: Callable[[], nn.Module]) -> None:
    expected = [event for event in allocations(traced(job_of())) if event[0]]
    assert [event for event in allocations(traced(job_of(model=build))) if event[0]] == expected


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16, lambda model: model.to("cuda", torch.half)])
def test_builder_may_convert(convert: Callable[[nn.Module], nn.Module]) -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        dtype = next(model.parameters()).dtype
        return F.mse_loss(model(samples[0].to("cuda", dtype)), samples[1].cuda().to(dtype))

    trace = traced(job_of(model=lambda: convert(net()), loss=None, step=step))
    assert weights(trace) == [16 * 2, 16 * 2, 16 * 16 * 2, 16 * 16 * 2]


def test_tied_weights_stay_tied_in_conversions() -> None:
    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False))
        model[1].weight = model[0].weight
        return model.half().float().cuda()

    assert weights(traced(job_of(model=build))) == [16 * 16 * 4]


def test_checkpoint_for_a_gpu_is_loaded(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "weights.pt")

    def build() -> nn.Module:
        model = net()
        model.load_state_dict(torch.load(tmp_path / "weights.pt", map_location="cuda"))
        return model.to("cuda")

    assert weights(traced(job_of(model=build))) == weights(traced(job_of()))


class LoraLinear(nn.Module):
    """A frozen layer with a trained low-rank part, as peft writes it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        self.a.to(base.weight.device, base.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x))


def test_frozen_base_has_no_gradients() -> None:
    trace = traced(
        job_of(
            model=lambda: LoraLinear(nn.Linear(16, 16)),
            optimizer=lambda m: torch.optim.AdamW(p for p in m.parameters() if p.requires_grad),
        )
    )
    gradients = {storage.size for storage in trace.storages if storage.kind is StorageKind.GRADIENT}
    assert gradients == {2 * 16 * 4}


def test_several_optimizers_are_counted() -> None:
    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        first, _, last = model.children()
        return [torch.optim.AdamW(first.parameters()), torch.optim.SGD(last.parameters(), 0.1, momentum=0.9)]

    trace = traced(job_of(optimizer=optimizers))
    state = [storage.size for storage in trace.storages if storage.kind is StorageKind.STATE and storage.step == 0]
    assert state.count(16 * 16 * 4) == 3  # two moments and a momentum
    with pytest.raises(UsageError, match="optimizer returned a value of type int"):
        traced(job_of(optimizer=lambda _: [3]))


def tanh_times(x: Tensor, times: int) -> Tensor:
    for _ in range(times):
        x = x.tanh()
    return x


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_scripted_functions_run_as_python() -> None:
    scripted = torch.jit.script(tanh_times)  # before the trace, as DeBERTa's are

    def step(model: nn.Module, samples: Any) -> Tensor:
        return scripted(torch.jit.script(model)(samples[0]), 2).sum()

    trace = traced(job_of(loss=None, step=step))
    assert sum(op == "aten.tanh.default" for op, _ in allocations(trace)) == 8


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing torch's compiler
def test_compiled_code_is_predicted_as_eager_with_a_wider_range() -> None:
    eager = oomph.predict(job_of(), Settings(batch=4), "H200")
    compiled = oomph.predict(job_of(model=lambda: torch.compile(net(), mode="max-autotune")), Settings(batch=4), "H200")
    assert compiled.allocated.value == eager.allocated.value
    assert compiled.allocated.high > 1.09 * eager.allocated.high
    assert COMPILED in compiled.assumptions
    decorated = torch.compile(lambda x: x.tanh())  # before the trace
    trace = traced(job_of(loss=None, step=lambda model, samples: decorated(model(samples[0])).sum()))
    assert "aten.tanh.default" in {op for op, _ in allocations(trace)}


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_live_compiled_model_is_traced() -> None:
    compiled = torch.compile(net())
    assert COMPILED in traced(job_of(model=lambda: compiled)).assumptions


class Tagger(nn.Module):
    """A recurrent network on packed sequences."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.rnn, self.head = kind(16, 32, batch_first=True, bidirectional=True), nn.Linear(64, 4)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            lengths = (x.abs().sum(-1) > 0).sum(1)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(out)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "device"), [(nn.LSTM, CudaDevice()), (nn.GRU, CudaDevice()), (nn.LSTM, CpuDevice()), (nn.RNN, CpuDevice())]
)
def test_packed_sequences(kind: Any, device: CudaDevice | CpuDevice) -> None:
    def sequences(length: Callable[[int, int], Tensor | None]) -> Callable[[int, Any], Any]:
        return lambda n, size: ((torch.randn(n, size, 16), length(n, size)), torch.randn(n, size, 4))

    def saved(length: Callable[[int, int], Tensor | None]) -> int:
        job = job_of(
            model=lambda: Tagger(kind),
            batch=sequences(length),
            loss=lambda out, target: (out - target[:, : len(out[0])]).sum(),
        )
        trace = trace_step(job, Settings(batch=64, size=16), device)
        assert trace.guesses
        return sum(storage.size for storage in trace.storages if storage.kind is StorageKind.ACTIVATION)

    full = saved(lambda n, size: torch.full((n,), size))
    unknown = saved(lambda n, size: None)  # they depend on data: full length is assumed
    half = saved(lambda n, size: torch.full((n,), size // 2))
    assert unknown == pytest.approx(full, rel=0.02)
    assert half < 0.7 * full


def test_matcher_on_assumed_values() -> None:
    def match(costs: Any) -> list[int]:
        assert costs.shape == (16, 16)
        return [int(row.argmin()) for row in costs]

    def step(model: nn.Module, samples: Any) -> Tensor:
        costs = torch.cdist(model(samples[0]).T, samples[1].T)
        columns = torch.as_tensor(match(costs.detach().cpu().numpy()))
        names = costs.argmax(1).tolist()
        assert len(names) == 16
        return costs[:, columns].mean()

    trace = traced(job_of(loss=None, step=step))
    assert {"values that depend on data count as 0.5", "values that depend on data count as 1"} <= {
        guess.text for guess in trace.guesses
    }
    assert not any(guess.is_branch for guess in trace.guesses)  # other values need as much memory


class Experts(nn.Module):
    """A mixture of experts with a loop over those that have tokens."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(16, count)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        choice = self.router(x).topk(2).indices
        mask = F.one_hot(choice, len(self.experts)).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for index in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            _, tokens = torch.where(mask[index].squeeze(0))
            out.index_add_(0, tokens, self.experts[int(index)](x[tokens]))
        return out


@pytest.mark.medium
def test_experts_have_an_even_share_of_the_tokens() -> None:
    trace = traced(job_of(model=lambda: Experts(8)), 1024)
    products = [size for op, size in allocations(trace) if op == "aten.addmm.default"]
    assert products.count(1024 * 2 // 8 * 16 * 4) == 8 * 4
    assert any(guess.is_branch and "torch.where(mask" in guess.line for guess in trace.guesses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products(dtype: torch.dtype) -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        offsets = torch.arange(1, 5, dtype=torch.int32) * (len(samples[0]) // 4)
        matrices: Any = model.experts
        return F.grouped_mm(samples[0].to(dtype), matrices, offs=offsets).float().mean()

    def build() -> nn.Module:
        model = nn.Module()
        model.experts = nn.Parameter(torch.zeros(4, 16, 16, dtype=dtype))
        return model

    trace = traced(job_of(model=build, loss=None, step=step), 64)
    assert any(storage.kind is StorageKind.GRADIENT for storage in trace.storages)


def test_sparse_embedding() -> None:
    def tokens(count: int, size: Any) -> tuple[Tensor, Tensor]:
        return torch.randint(0, 1000, (count, size)), torch.randn(count, size, 16)

    trace = traced(
        job_of(
            model=lambda: nn.Embedding(1000, 16, sparse=True),
            batch=tokens,
            optimizer=lambda m: torch.optim.SparseAdam(m.parameters()),
        )
    )
    state = [storage.size for storage in trace.storages if storage.kind is StorageKind.STATE]
    assert state.count(1000 * 16 * 4) >= 2
    gradients = [s.size for s in trace.storages if s.kind is StorageKind.GRADIENT]
    assert max(gradients) == 4 * 8 * 16 * 4  # one row per token, not per entry of the table


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def test_custom_autograd_function() -> None:
    square: Any = Square.apply
    step = lambda model, samples: square(model(samples[0])).mean()  # noqa: E731
    assert traced(job_of(loss=None, step=step)).storages


@pytest.mark.medium
def test_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(_: Any, __: Any, q: Any, k: Any) -> Any:
        return q >= k

    def step(model: nn.Module, samples: Any) -> Tensor:
        x = model(samples[0]).view(4, 1, 128, 16)
        mask = create_block_mask(causal, 1, 1, 128, 128, device="cuda")
        return torch.compile(flex_attention)(x, x, x, block_mask=mask).mean()

    inputs = lambda n, size: (torch.randn(n, 128, 16), torch.zeros(1))  # noqa: E731
    assert traced(job_of(batch=inputs, loss=None, step=step)).storages


def test_limit_of_ours_is_named_with_operation_and_line() -> None:
    @torch.library.custom_op("oomph_test::without_fake", mutates_args=())
    def without_fake(x: Tensor) -> Tensor:
        return x.clone()

    def step(model: nn.Module, samples: Any) -> Tensor:
        return without_fake(model(samples[0])).mean()

    with pytest.raises(UsageError) as caught:
        traced(job_of(loss=None, step=step))
    assert "a limit of ours" in caught.value.why
    assert "oomph_test::without_fake" in caught.value.why
    assert "without_fake(model(samples[0]))" in caught.value.why
    assert "fix" not in caught.value.fix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": lambda m: torch.optim.LBFGS(m.parameters())}, "LBFGS, whose step needs a closure"),
        ({"model": lambda: nn.Sequential(nn.LazyLinear(16))}, r"parameters of 0 \(LazyLinear\) have no shape"),
        ({"model": lambda: nn.Sequential(SCRIPTED)}, "the TorchScript module 0"),
        (
            {"loss": lambda output, target: jagged(output).values().mean()},
            r"torch\.nested\.nested_tensor.*a limit of ours",
        ),
    ],
)
def test_what_cannot_be_traced_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        traced(job_of(**changes))


def jagged(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor(list(x.unbind(0)), layout=torch.jagged)


def test_mistake_of_the_user_is_named_with_its_line() -> None:
    def step(model: nn.Module, samples: Any) -> Tensor:
        return model(samples[0][:, :5]).mean()

    with pytest.raises(UsageError, match=r"mat1 and mat2|size") as caught:
        traced(job_of(loss=None, step=step))
    assert "test_any_code.py" in caught.value.why
    assert "ours" not in caught.value.why


def test_transformers_takes_fake_tensors_for_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = types.ModuleType("transformers.utils.import_utils")
    imports.is_fake_tensor = lambda x: isinstance(x, FakeTensor)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, imports.__name__, imports)

    def step(model: nn.Module, data: Any) -> Tensor:
        y: Tensor = model(data[0])
        return y.tanh().mean() if imports.is_fake_tensor(y) else y.exp().mean()

    operations = {op for op, _ in allocations(traced(job_of(loss=None, step=step)))}
    assert "aten.exp.default" in operations
    assert "aten.tanh.default" not in operations
    with FakeTensorMode():
        assert imports.is_fake_tensor(torch.empty(1))  # as before
