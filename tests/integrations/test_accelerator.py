from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from oomph.errors import UsageError
from oomph.integrations._accelerator import check_accelerator, check_prepared


def accelerator(kind: str = "NO", **options: Any) -> SimpleNamespace:
    return SimpleNamespace(distributed_type=SimpleNamespace(value=kind), **options)


def compiling(processes: int) -> SimpleNamespace:
    plugin = SimpleNamespace(backend=SimpleNamespace(value="INDUCTOR"))
    return accelerator("MULTI_CPU", num_processes=processes, state=SimpleNamespace(dynamo_plugin=plugin))


@pytest.mark.parametrize(
    ("fake", "message"),
    [
        (
            accelerator("DEEPSPEED"),
            "training with DeepSpeed can't be guarded, because it runs forward, backward and up",
        ),
        (accelerator("MEGATRON_LM"), "training with Megatron-LM can't be guarded"),
        (accelerator("XLA"), r"training with a TPU \(XLA\) can't be guarded"),
        (accelerator("FSDP"), "FSDP1 can't be guarded; use FSDP2"),
        (accelerator("FSDP", is_fsdp2=False), "FSDP1 can't be guarded; use FSDP2"),
        (accelerator(parallelism_config=SimpleNamespace(tp_size=2)), "tensor parallelism can't be guarded"),
        (accelerator(parallelism_config=SimpleNamespace(cp_size=4)), "context parallelism can't be guarded"),
        (compiling(processes=2), "a model that accelerate compiles can't be guarded on several ranks"),
    ],
)
def test_what_cant_be_repeated_is_refused(fake: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_accelerator(fake)


@pytest.mark.parametrize(
    "fake",
    [
        accelerator(),
        accelerator("MULTI_GPU", num_processes=2),
        compiling(processes=1),
        accelerator("FSDP", is_fsdp2=True),
        accelerator(parallelism_config=SimpleNamespace(tp_size=1, cp_size=None)),
    ],
)
def test_what_can_be_repeated_is_allowed(fake: Any) -> None:
    check_accelerator(fake)


def test_a_model_is_refused_only_if_the_prepared_ones_are_known() -> None:
    check_prepared(accelerator(), nn.Linear(1, 1))
    with pytest.raises(UsageError, match="the model isn't prepared"):
        check_prepared(accelerator(_models=[nn.Linear(1, 1)]), nn.Linear(1, 1))
