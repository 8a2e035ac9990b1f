"""Batches, steps and optimizers of the third-party configurations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 20000


def rmsprop(model: nn.Module) -> torch.optim.Optimizer:
    """Return RMSprop with momentum."""
    return torch.optim.RMSprop(model.parameters(), 1e-4, momentum=0.9)


def adafactor(model: nn.Module) -> torch.optim.Optimizer:
    """Return torch's Adafactor."""
    return torch.optim.Adafactor(model.parameters(), 1e-3)


def _ids(count: int, length: int) -> Tensor:
    return torch.randint(5, VOCABULARY, (count, length))


def tokens(count: int, size: Any) -> dict[str, Tensor]:
    """Return token ids with labels for each."""
    return {"input_ids": _ids(count, size), "labels": _ids(count, size)}


def padded_tokens(count: int, size: Any) -> dict[str, Tensor]:
    """Return token ids with labels for each, and a mask in which the last tokens are padding."""
    mask = (torch.arange(size) < size - 16).long().repeat(count, 1)
    return {**tokens(count, size), "attention_mask": mask}


def documents(count: int, size: Any) -> dict[str, Tensor]:
    """Return token ids with one class per sample."""
    return {"input_ids": _ids(count, size), "labels": torch.randint(0, 2, (count,))}


def masked_documents(count: int, size: Any) -> dict[str, Tensor]:
    """Return token ids with one class per sample, and a mask without padding, as tokenizers give it."""
    return {**documents(count, size), "attention_mask": torch.ones(count, size, dtype=torch.long)}


def binary_tokens(count: int, size: Any) -> dict[str, Tensor]:
    """Return token ids with a label of 0 or 1 each."""
    return {"input_ids": _ids(count, size), "labels": torch.randint(0, 2, (count, size))}


def sentence_pairs(count: int, size: Any) -> dict[str, Tensor]:
    """Return source and target token ids; the targets are half as long."""
    return {"input_ids": _ids(count, size), "labels": _ids(count, size // 2)}


def layouts(count: int, size: Any) -> dict[str, Tensor]:
    """Return token ids with a box and a label of 0 or 1 each."""
    box = torch.tensor([10, 10, 200, 100]).repeat(count, size, 1)
    return {**binary_tokens(count, size), "bbox": box}


def pictures(count: int, size: Any) -> dict[str, Tensor]:
    """Return images with one class each, by name."""
    return {"pixel_values": torch.randn(count, 3, size, size), "labels": torch.randint(0, 1000, (count,))}


def unlabeled_pictures(count: int, size: Any) -> dict[str, Tensor]:
    """Return images by name."""
    return {"pixel_values": torch.randn(count, 3, size, size)}


def depth_maps(count: int, size: Any) -> dict[str, Tensor]:
    """Return images with a number for each pixel."""
    return {"pixel_values": torch.randn(count, 3, size, size), "labels": torch.rand(count, size, size)}


def label_maps(count: int, size: Any) -> dict[str, Tensor]:
    """Return images with a class for each pixel."""
    return {"pixel_values": torch.randn(count, 3, size, size), "labels": torch.randint(0, 4, (count, size, size))}


def small_pictures(count: int, size: Any) -> dict[str, Tensor]:
    """Return images with one class each, for models that call them inputs."""
    return {"inputs": torch.randn(count, 3, size, size), "labels": torch.randint(0, 1000, (count,))}


def captions(count: int, size: Any) -> dict[str, Any]:
    """Return images with captions of 64 tokens, for a contrastive loss."""
    return {"input_ids": _ids(count, 64), "pixel_values": torch.randn(count, 3, size, size), "return_loss": True}


def frames(count: int, size: Any) -> dict[str, Tensor]:
    """Return videos of 8 frames with one class each, by name."""
    return {"pixel_values": torch.randn(count, 8, 3, size, size), "labels": torch.randint(0, 400, (count,))}


def spectrograms(count: int, size: Any) -> dict[str, Tensor]:
    """Return mel spectrograms with their transcriptions."""
    return {"input_features": torch.randn(count, 80, size), "labels": _ids(count, 64)}


def audio_patches(count: int, size: Any) -> dict[str, Tensor]:
    """Return spectrograms of 128 bins with one class each."""
    return {"input_values": torch.randn(count, size, 128), "labels": torch.randint(0, 2, (count,))}


def waveforms(count: int, size: Any) -> dict[str, Tensor]:
    """Return waveforms with their transcriptions."""
    return {"input_values": torch.randn(count, size), "labels": torch.randint(1, 32, (count, 20))}


def classified_waveforms(count: int, size: Any) -> dict[str, Tensor]:
    """Return waveforms with one class each."""
    return {"input_values": torch.randn(count, size), "labels": torch.randint(0, 2, (count,))}


def series(count: int, size: Any) -> dict[str, Tensor]:
    """Return time series with two time features, and their next 24 values."""
    past, future = (count, size), (count, 24)
    return {
        "past_values": torch.rand(past),
        "past_time_features": torch.rand(*past, 2),
        "past_observed_mask": torch.ones(past),
        "future_values": torch.rand(future),
        "future_time_features": torch.rand(*future, 2),
    }


def channels(count: int, size: Any) -> dict[str, Tensor]:
    """Return time series of seven channels, and their next 24 values."""
    return {"past_values": torch.rand(count, size, 7), "future_values": torch.rand(count, 24, 7)}


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return images with one class each."""
    return torch.randn(count, 3, size, size), torch.randint(0, 1000, (count,))


def clips(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return videos of 16 frames with one class each."""
    return torch.randn(count, 3, 16, size, size), torch.randint(0, 400, (count,))


def masks(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return images with a class for each pixel."""
    return torch.randn(count, 3, size, size), torch.randint(0, 4, (count, size, size))


def flows(count: int, size: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return pairs of images with the optical flow between them."""
    shape = (count, 3, size, size)
    return torch.randn(shape), torch.randn(shape), torch.randn(count, 2, size, size)


def model_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss that a model of transformers computes from its labels."""
    loss: Tensor = model(**batch).loss
    return loss


def box_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return a loss on all queries of a detector, without matching them to boxes."""
    outputs = model(**batch)
    classes = torch.zeros(outputs.logits.shape[:2], dtype=torch.long, device=outputs.logits.device)
    entropy = F.cross_entropy(outputs.logits.transpose(1, 2), classes)
    return entropy + F.l1_loss(outputs.pred_boxes, torch.zeros_like(outputs.pred_boxes))


def class_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the cross entropy of a model's outputs and of its auxiliary ones."""
    inputs, targets = batch
    outputs = model(inputs)
    if isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    if isinstance(outputs, Tensor):
        outputs = (outputs,)
    return torch.stack([F.cross_entropy(output, targets) for output in outputs if output is not None]).sum()


def flow_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean distance of each refinement of an optical flow."""
    first, second, flow = batch
    return torch.stack([(estimate - flow).abs().mean() for estimate in model(first, second, num_flow_updates=4)]).sum()
