from __future__ import annotations

from oomph.script import Model, TrainingLoop


def test_loop_is_described_in_one_line() -> None:
    loop = TrainingLoop(
        models=(Model("Net", 11_200_000),),
        optimizers=("AdamW",),
        samples=32,
        has_loader=True,
        micro_batches=2,
        precision="amp-bf16",
        steps=3,
    )
    assert loop.describe() == (
        "model Net (11.2 M parameters), AdamW, batches of 32 from the DataLoader, 2 micro-batches per step, amp-bf16"
    )
    assert (loop.settings.batch, loop.settings.micro_batch) == (64, 32)


def test_batch_of_unknown_size_is_left_out() -> None:
    loop = TrainingLoop((Model("G", 50), Model("D", 40)), ("Adam", "Adam"), None, False, 1, "fp32", 3)
    assert loop.describe() == "model G (50 parameters), model D (40 parameters), 2 Adam"
    assert loop.settings.batch == 1
