"""Trains a small language model with a guarded Trainer, on generated text and without a download."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import oomph
from oomph.integrations.transformers import GuardedTrainer


def sentences(count: int, length: int = 64) -> list[dict[str, torch.Tensor]]:
    """Numbers that count up by a step of the sentence's own."""
    rows = []
    for _ in range(count):
        start, step = torch.randint(1, 10, (2,))
        ids = (start + step * torch.arange(length)) % 100
        rows.append({"input_ids": ids, "labels": ids})
    return rows


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=32,
        gradient_accumulation_steps=2,
        max_steps=20,
        learning_rate=3e-3,
        logging_steps=5,
        report_to=[],
    )
    trainer = GuardedTrainer(
        model=GPT2LMHeadModel(config),
        args=args,
        train_dataset=sentences(1000),
        record="run.jsonl",
        guard_options={"micro_batch": 8},  # as if no more sentences fitted into memory
    )
    trainer.train()
    steps = oomph.Record.load("run.jsonl").steps
    print(f"{len(steps)} batches of 32 in {steps[-1]['micro_batches']} micro-batches each")


if __name__ == "__main__":
    main()
