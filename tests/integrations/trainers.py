"""Trainers of transformers for tests: small models, data, arguments, logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn


class Calls(transformers.TrainerCallback):  # type: ignore[misc]
    """Notes every call of a callback with the number of updates before it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_") and name != "on_init_end":
            return lambda args, state, control, **_: self.calls.append((name, state.global_step))
        return super().__getattribute__(name)


class Regressor(nn.Module):
    """Returns its loss, a mean over samples, and takes no number of items."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        outputs = self.body(x)
        return {"loss": nn.functional.mse_loss(outputs, labels), "logits": outputs}


def language_model(dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> nn.Module:
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, loss_type="ForCausalLM",
    )  # fmt: skip
    model: nn.Module = transformers.GPT2LMHeadModel(config).to(dtype)
    return model


def regressor() -> nn.Module:
    transformers.set_seed(0)
    return Regressor().double()


def texts(count: int = 24) -> list[dict[str, Tensor]]:
    """Sequences of different lengths, so that batches have different numbers of labels."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(count):
        ids = torch.randint(1, 50, (12,), generator=generator)
        is_text = torch.arange(12) < torch.randint(4, 12, (1,), generator=generator)
        rows.append({"input_ids": ids, "attention_mask": is_text.long(), "labels": ids.where(is_text, -100)})
    return rows


def points(count: int = 22) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "x": torch.randn(4, generator=generator, dtype=torch.float64),
            "labels": torch.randn(2, generator=generator, dtype=torch.float64),
        }
        for _ in range(count)
    ]


def arguments(folder: Path, **options: Any) -> Any:
    """Arguments of a run on the CPU: SGD, clipping, two accumulated batches, a log line per update."""
    defaults = {
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 5, "logging_steps": 1,
        "learning_rate": 0.1, "max_grad_norm": 0.5, "optim": "sgd", "save_strategy": "no", "report_to": [],
        "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    return transformers.TrainingArguments(output_dir=str(folder), **{**defaults, **options})


def logs(trainer: Any) -> list[dict[str, float]]:
    """Return the logged values without times."""
    return [
        {name: value for name, value in line.items() if "runtime" not in name and "per_second" not in name}
        for line in trainer.state.log_history
    ]
