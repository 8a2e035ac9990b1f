from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from oomph.errors import UsageError
from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import CudaDevice, Phase, StorageKind, Trace, trace_step


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def make_job(**changes: Any) -> Job:
    return Job(**{"model": net, "batch": images, "loss": F.cross_entropy, "optimizer": sgd, **changes})


def tokens(count: int, size: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, size, 64), torch.randn(count, size, 64)


def traced(job: Job, **settings: Any) -> Trace:
    return trace_step(job, Settings(**{"batch": 4, "size": 32, **settings}), CudaDevice())


def largest(trace: Trace, op: str) -> int:
    return max((storage.size for storage in trace.storages if storage.op.startswith(f"aten.{op}.")), default=0)


def test_storages_have_their_kind() -> None:
    kinds: Counter[StorageKind] = Counter()
    trace = traced(make_job())
    for event in trace.events[: trace.training_events]:
        if event > 0:
            kinds[trace.storages[event - 1].kind] += trace.storages[event - 1].size
    weights = sum(parameter.numel() * 4 for parameter in net().parameters())
    assert kinds[StorageKind.PARAMETER] == weights
    assert kinds[StorageKind.STATE] == weights
    assert kinds[StorageKind.GRADIENT] == 3 * weights  # once per step
    assert kinds[StorageKind.BUFFER] > 0
    assert kinds[StorageKind.INPUT] == 3 * (4 * 3 * 32 * 32 * 4 + 4 * 8)
    assert kinds[StorageKind.ACTIVATION] > 0
    assert kinds[StorageKind.WORKSPACE] > 0


def test_state_that_an_optimizer_is_built_with_counts() -> None:
    weights = sum(parameter.numel() * 4 for parameter in net().parameters())
    trace = traced(make_job(optimizer=lambda model: torch.optim.Adagrad(model.parameters(), 0.1)))
    state = [storage for storage in trace.storages if storage.kind is StorageKind.STATE]
    assert sum(storage.size for storage in state if storage.phase is Phase.BUILD) >= weights
    assert all(storage.phase in {Phase.BUILD, Phase.AVERAGE} for storage in state)


def test_outputs_that_a_step_keeps_live_until_the_next_step_replaces_them() -> None:
    def live_between_steps(keep: bool) -> int:  # noqa: FBT001
        kept: dict[str, Tensor] = {}

        def step(model: nn.Module, batch: Any) -> Tensor:
            outputs = model(batch[0])
            if keep:
                kept["outputs"] = outputs
            return F.mse_loss(outputs, torch.zeros_like(outputs))

        job = make_job(model=lambda: nn.Linear(64, 4096), batch=tokens, loss=None, step=step)
        trace = traced(job, size=16)
        starts = {phase: start for start, step, phase in trace.phase_starts if step == 1}
        before = trace.events[: starts[Phase.FORWARD]]
        return sum(trace.storages[abs(event) - 1].size * (1 if event > 0 else -1) for event in before)

    assert live_between_steps(keep=True) - live_between_steps(keep=False) == 4 * 16 * 4096 * 4


def test_everything_is_freed_except_what_training_keeps() -> None:
    trace = traced(make_job())
    allocated, freed = {e for e in trace.events if e > 0}, {-e for e in trace.events if e < 0}
    assert freed <= allocated
    kept = Counter(trace.storages[index - 1].kind for index in allocated - freed)
    assert set(kept) == {StorageKind.PARAMETER, StorageKind.BUFFER, StorageKind.STATE, StorageKind.WORKSPACE}


def test_steps_after_the_first_are_equal() -> None:
    trace = traced(make_job())
    starts = [start for start, step, phase in trace.phase_starts if step in {1, 2} and phase is Phase.FORWARD]
    second = [trace.storages[abs(e) - 1].size for e in trace.events[starts[0] : starts[1]]]
    third = [trace.storages[abs(e) - 1].size for e in trace.events[starts[1] : trace.training_events]]
    assert second == third


def test_memory_is_attributed_to_modules_forward_and_backward() -> None:
    modules = {(storage.module, storage.phase) for storage in traced(make_job()).storages}
    assert ("0", Phase.FORWARD) in modules
    assert ("1", Phase.BACKWARD) in modules


def allocations(trace: Trace, phase: Phase) -> list[tuple[str, int]]:
    """Return operation and size of all allocations in a phase of the first step, in order."""
    storages = [trace.storages[event - 1] for event in trace.events[: trace.training_events] if event > 0]
    return [(storage.op, storage.size) for storage in storages if storage.phase is phase and storage.step == 0]


def test_squared_loss_is_as_large_as_its_elements_until_backward_ends() -> None:
    trace = traced(make_job(model=lambda: nn.Linear(64, 64), batch=tokens, loss=F.mse_loss))
    size = 4 * 32 * 64 * 4
    assert [pair for pair in allocations(trace, Phase.FORWARD) if pair[0] == "aten.mse_loss.default"] == [
        ("aten.mse_loss.default", size),  # the result
        ("aten.mse_loss.default", size),  # the elementwise loss
    ]
    events = [(trace.storages[abs(event) - 1].op, event > 0) for event in trace.events]
    last = events.index(("aten.mm.default", True))
    assert events[:last].count(("aten.mse_loss.default", False)) == 1


class Residual(nn.Module):
    """Gradients meet at a tensor that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return h + self.second(h).tanh()


def test_gradients_that_meet_are_summed_in_place() -> None:
    backward = allocations(traced(make_job(model=Residual, batch=tokens, loss=F.mse_loss)), Phase.BACKWARD)
    assert not [op for op, _ in backward if op.startswith("aten.add")]


def test_gradient_of_an_index_is_written_in_place() -> None:
    def run(model: nn.Module, batch: Any) -> Tensor:
        outputs = model(batch[0])
        return outputs[torch.zeros(3, dtype=torch.long)].square().mean()

    backward = allocations(traced(make_job(model=Residual, batch=tokens, loss=None, step=run)), Phase.BACKWARD)
    assert "aten.index_put.default" not in [op for op, _ in backward]
    assert 4 * 32 * 64 * 4 in [size for op, size in backward if "zeros" in op]


def test_autocast_casts_the_last_argument_first() -> None:
    trace = traced(make_job(model=lambda: nn.Linear(64, 16), batch=tokens, loss=None, step=mean), precision="amp-bf16")
    casts = [size for op, size in allocations(trace, Phase.FORWARD) if op == "aten._to_copy.default"]
    assert casts[:3] == [16 * 2, 64 * 16 * 2, 4 * 32 * 64 * 2]  # bias, weight, input


def mean(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean of the model's outputs."""
    return model(batch[0]).float().mean()


def test_concatenation_is_not_cast() -> None:
    def run(model: nn.Module, batch: Any) -> Tensor:
        return torch.cat([model(batch[0]), batch[0]], -1).mean()

    trace = traced(make_job(model=lambda: nn.Linear(64, 64), batch=tokens, loss=None, step=run), precision="amp-bf16")
    ops = allocations(trace, Phase.FORWARD)
    assert ("aten.cat.default", 4 * 32 * 128 * 4) in ops
    assert sum(op == "aten._to_copy.default" for op, _ in ops) == 3  # bias, weight and input of the linear layer


def test_autocast_follows_the_cuda_lists() -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            assert y.dtype == torch.bfloat16
            z = self.norm(y)
            assert z.dtype == torch.float32  # the CPU's autocast would leave it in bfloat16
            return F.softmax(self.linear(z), -1)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        assert output.dtype == torch.float32
        return F.mse_loss(output, target)

    traced(make_job(model=Norms, batch=tokens, loss=loss), precision="amp-bf16")


def test_cpu_autocast_is_restored_after_a_trace() -> None:
    traced(make_job(), precision="amp-fp16")
    x, norm = torch.randn(2, 8), nn.LayerNorm(8)
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x.bfloat16()).dtype == torch.bfloat16
        assert nn.Linear(8, 8)(x).dtype == torch.bfloat16
    assert F.dropout(x, 0.5).shape == x.shape
    assert F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]).shape == (1, 1, 2, 8)


def test_autocast_caches_one_copy_of_a_shared_weight() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.linear(x))

    trace = traced(make_job(model=Twice, batch=tokens, loss=F.mse_loss), precision="amp-bf16")
    copies = [
        s
        for s in trace.storages
        if s.op == "aten._to_copy.default" and s.size == 64 * 64 * 2 and s.phase is Phase.FORWARD
    ]
    assert len(copies) == 3  # one per step


@pytest.mark.medium
def test_attention_does_not_use_the_quadratic_kernel() -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(64, 192)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(x.shape[0], x.shape[1], 3, 4, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.125).transpose(1, 2).flatten(2)

    for precision, op in (("fp32", "efficient"), ("amp-bf16", "cudnn")):
        trace = traced(make_job(model=Attend, batch=tokens, loss=F.mse_loss), size=512, precision=precision)
        assert any(storage.op.startswith(f"aten._scaled_dot_product_{op}") for storage in trace.storages)
        assert (
            max(storage.size for storage in trace.storages if storage.kind is not StorageKind.WORKSPACE)
            < 4 * 4 * 512 * 512 * 2
        )


def test_dropout_saves_a_boolean_mask() -> None:
    trace = traced(
        make_job(model=lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)), batch=tokens, loss=F.mse_loss)
    )
    sizes = {storage.size for storage in trace.storages if storage.op == "aten.native_dropout.default"}
    assert sizes == {4 * 32 * 64 * 4, 4 * 32 * 64}


def test_micro_batches_share_one_optimizer_step() -> None:
    trace = traced(make_job(), batch=8, micro_batch=4)
    phases = [phase for _, step, phase in trace.phase_starts if step == 1]
    assert phases == [Phase.FORWARD, Phase.BACKWARD] * 2 + [Phase.OPTIMIZER]
    assert largest(trace, "convolution") == largest(traced(make_job(), batch=4), "convolution")


@pytest.mark.medium
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_saves_fewer_activations(reentrant: bool) -> None:  # noqa: FBT001
    class Blocks(nn.Module):
        def __init__(self, *, save: bool) -> None:
            super().__init__()
            self.save = save
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(6)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.blocks[0](x)
            for block in self.blocks[1:]:
                x = checkpoint(block, x, use_reentrant=reentrant) if self.save else block(x)
            return x

    def saved_bytes(*, save: bool) -> int:
        trace = traced(make_job(model=lambda: Blocks(save=save), batch=tokens, loss=F.mse_loss), size=256)
        return sum(s.size for s in trace.storages if s.kind is StorageKind.ACTIVATION and s.step == 1)

    assert saved_bytes(save=True) < saved_bytes(save=False) / 2


def test_boolean_masks_keep_the_mask_fraction() -> None:
    def masked_loss(output: Tensor, target: Tensor) -> Tensor:
        positive = output[target > 0]
        if positive.numel() == 0 or not (target > 0).any():
            return output.sum() * 0
        return positive.abs().mean() + output.masked_select(target < 0).mean()

    everything = traced(make_job(model=lambda: nn.Linear(64, 64), batch=tokens, loss=masked_loss))
    quarter = traced(make_job(model=lambda: nn.Linear(64, 64), batch=tokens, loss=masked_loss, mask_fraction=0.25))
    assert any("boolean mask" in assumption for assumption in everything.assumptions)
    assert largest(everything, "index") == 4 * 32 * 64 * 4
    assert largest(quarter, "index") == 4 * 32 * 64


def test_model_that_reads_values_while_being_built_is_traced() -> None:
    def build() -> nn.Module:
        rates = [float(rate) for rate in torch.linspace(0, 0.5, 3)]
        return nn.Sequential(net(), nn.Dropout(rates[1]))

    assert traced(make_job(model=build)).storages


@pytest.mark.medium
def test_model_that_copies_its_layers_is_traced() -> None:
    def build() -> nn.Module:
        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    assert traced(make_job(model=build, batch=tokens, loss=F.mse_loss), precision="amp-fp16").storages


def test_code_that_validates_its_data_is_traced() -> None:
    def validating_loss(output: Tensor, target: Tensor) -> Tensor:
        if target.isnan().any():
            raise ValueError("bad target")
        return F.mse_loss(output, target)

    assert traced(make_job(model=lambda: nn.Linear(64, 64), batch=tokens, loss=validating_loss)).storages


def test_ctc_loss_assumes_targets_of_full_length() -> None:
    def speech(count: int, size: Any) -> tuple[Tensor, Tensor]:
        return torch.randn(size, count, 64), torch.randint(1, 20, (count, 5))

    def loss(output: Tensor, target: Tensor) -> Tensor:
        steps, count = output.shape[:2]
        return F.ctc_loss(output.log_softmax(-1), target, torch.full((count,), steps), torch.full((count,), 5))

    trace = traced(make_job(model=lambda: nn.Linear(64, 20), batch=speech, loss=loss))
    assert any("CTC" in assumption for assumption in trace.assumptions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": lambda: 1 / 0}, "model raised ZeroDivisionError"),
        ({"model": lambda: sys.exit(3)}, "model raised SystemExit: 3"),
        ({"model": lambda: "net"}, "model returned a value of type str"),
        ({"batch": lambda n, size: 1 / 0}, "batch raised ZeroDivisionError"),
        ({"optimizer": lambda model: 1 / 0}, "optimizer raised ZeroDivisionError"),
        ({"loss": lambda output, target: sys.exit(3)}, "SystemExit: 3"),
        ({"loss": lambda output, target: output}, r"loss is a tensor of shape \(4, 10\), not a scalar"),
        ({"loss": lambda output, target: 3.0}, "loss is a value of type float, not a scalar"),
        ({"model": lambda: nn.Sequential(nn.MaxPool2d(64), net())}, "can't run with 4 samples of size 32"),
    ],
)
def test_job_that_fails_is_rejected_with_the_cause(changes: dict[str, Callable[..., Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        traced(make_job(**changes))


def test_batch_norm_saves_a_dense_copy_of_its_input() -> None:
    """cuDNN needs the input dense, so a transposed one is copied and the copy is saved; bfloat16 runs without cuDNN."""

    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64)

        def forward(self, x: Tensor) -> Any:
            return self.norm(self.linear(x).transpose(1, 2)).transpose(1, 2)

    job = make_job(model=Transposed, batch=tokens, loss=F.mse_loss)
    assert largest(traced(job), "clone") == 4 * 32 * 64 * 4
    assert largest(traced(job, precision="bf16"), "clone") < 4 * 32 * 64 * 2


def test_statistics_of_layer_norm_are_in_fp32() -> None:
    job = make_job(model=lambda: nn.LayerNorm(64), batch=tokens, loss=F.mse_loss)
    sizes = [s.size for s in traced(job, precision="bf16").storages if s.op == "aten.native_layer_norm.default"]
    assert set(sizes) == {4 * 32 * 64 * 2, 4 * 32 * 4}


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="torch 2.8 and newer have it")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_products_of_experts_are_traced_in_every_precision(precision: str) -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 48, 64))

        def forward(self, x: Tensor) -> Tensor:
            ends = torch.tensor([32, 64, 96, 128], dtype=torch.int32)
            return torch._grouped_mm(x.flatten(0, 1), self.weight.transpose(-2, -1), offs=ends)

    job = make_job(model=Experts, batch=tokens, loss=lambda outputs, _: outputs.square().mean())
    size = 4 if precision == "fp32" else 2
    sizes = [s.size for s in traced(job, precision=precision).storages if s.op.startswith("aten._grouped_mm")]
    assert sorted(set(sizes)) == [4 * 32 * 48 * size, 4 * 48 * 64 * size]  # results and the gradient of the weights


def test_a_loss_in_chunks_keeps_no_float32_copies_of_the_logits() -> None:
    rows, classes = 256, 8192
    job = make_job(
        model=lambda: nn.Linear(8, classes),
        batch=lambda count, _: (torch.randn(count, 8), torch.randint(classes, (count,))),
    )

    def activations(chunks: int) -> int:
        settings = Settings(batch=rows, precision="amp-bf16", loss_chunks=chunks)
        storages = trace_step(job, settings, CudaDevice()).storages
        return sum(storage.size for storage in storages if storage.kind is StorageKind.ACTIVATION and storage.step == 2)

    logits = rows * classes
    assert 6 * logits < activations(1) < 7 * logits  # log-probabilities in bfloat16 and float32
    assert 2 * logits < activations(16) < 3 * logits  # the gradient in bfloat16
    loss = F.cross_entropy(torch.randn(2, 2, requires_grad=True), torch.ones(2).long())
    assert "Chunked" not in type(loss.grad_fn).__name__  # torch is as before


class Gate(torch.autograd.Function):
    """An operation of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.sign()


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        return Gate.apply(hidden)  # type: ignore[no-untyped-call]


def test_stacks_are_kept_on_request_only() -> None:
    job = make_job(model=Gated, batch=tokens, loss=F.mse_loss)
    plain = traced(job)
    assert not any(storage.stack for storage in plain.storages)
    kept = trace_step(job, Settings(batch=4, size=32), CudaDevice(), stacks=True)
    assert [replace(storage, stack=()) for storage in kept.storages] == list(plain.storages)
    assert kept.events == plain.events
    linear = next(storage for storage in kept.storages if storage.op == "aten.addmm.default" and storage.stack)
    (line,) = linear.stack
    assert (line.file, line.function) == (__file__, "forward")
    assert linecache.getline(line.file, line.line).strip() == "hidden = self.layer(x)"


def test_backward_has_the_stack_of_the_forward() -> None:
    job = make_job(model=Gated, batch=tokens, loss=F.mse_loss)
    kept = trace_step(job, Settings(batch=4, size=32), CudaDevice(), stacks=True)
    signs = [storage for storage in kept.storages if storage.op == "aten.sign.default"]
    assert len(signs) == 3
    for storage in signs:
        assert storage.phase is Phase.BACKWARD
        sources = [linecache.getline(line.file, line.line).strip() for line in storage.stack]
        assert sources[-1].startswith("return Gate.apply(hidden)")


def test_operations_know_their_first_event() -> None:
    trace = traced(make_job())
    assert len(trace.op_starts) == len(trace.op_costs)
    assert list(trace.op_starts) == sorted(trace.op_starts)
    for cost, start in zip(trace.op_costs, trace.op_starts, strict=True):
        if cost.op == "convolution":
            assert trace.storages[trace.events[start] - 1].op == "aten.convolution.default"
