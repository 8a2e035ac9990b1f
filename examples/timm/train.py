"""Trains a small ViT with timm's task, scaler, EMA and schedule, on generated images and without a download."""

from __future__ import annotations

import functools

import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.models.vision_transformer import VisionTransformer
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.task import ClassificationTask
from timm.utils import NativeScaler

from oomph.integrations.timm import guard


def main() -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 4, (8, 32))
    images = torch.randn(8, 32, 3, 32, 32) * 0.2 + labels.view(8, 32, 1, 1, 1) / 4
    model = VisionTransformer(img_size=32, patch_size=8, num_classes=4, embed_dim=32, depth=2, num_heads=2)
    task = ClassificationTask(model, LabelSmoothingCrossEntropy(0.1))
    task.setup_ema(decay=0.99, use_warmup=True)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=3e-3)
    scheduler = CosineLRScheduler(optimizer, t_initial=40, t_in_epochs=False)
    options = {"scheduler": scheduler, "loss_scaler": NativeScaler("cpu"), "clip_grad": 1.0, "record": "run.jsonl"}
    amp_autocast = functools.partial(torch.autocast, "cpu", torch.bfloat16)
    accum_steps, updates_per_epoch = 2, 4
    with guard(task, optimizer, amp_autocast=amp_autocast, micro_batch=8, **options) as guarded:
        for epoch in range(10):
            guarded.start_epoch(epoch, epoch * updates_per_epoch)
            for number, (image, target) in enumerate(zip(images, labels, strict=True)):
                need_update = (number + 1) % accum_steps == 0
                report = guarded.step(image, target, need_update=need_update, accum_steps=accum_steps)
            print(f"epoch {epoch}: loss {report.loss * accum_steps:.3f}, {guarded.num_updates} updates")
    print(f"batches of 32 in {report.micro_batches} micro-batches each")


if __name__ == "__main__":
    main()
