"""Named configurations of many model families, predicted on a CPU and measured on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.job import Job
from oomph.settings import Settings

from . import networks
from .torchvision_shim import declare_operators, import_detection

Model = Callable[[], nn.Module]


@dataclass(frozen=True)
class Config:
    """One configuration.

    Attributes:
        name: unique name.
        family: the model family.
        job: what to train.
        settings: how to train it.
    """

    name: str
    family: str
    job: Job
    settings: Settings


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum."""
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW with torch's default implementation."""
    return torch.optim.AdamW(model.parameters(), 1e-4)


def fused(model: nn.Module) -> torch.optim.Optimizer:
    """Return fused AdamW."""
    return torch.optim.AdamW(model.parameters(), 1e-4, fused=True)


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return images with one class each."""
    return torch.randn(count, 3, size, size), torch.randint(0, 1000, (count,))


def masks(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return images with a class for each pixel."""
    return torch.randn(count, 3, size, size), torch.randint(0, 4, (count, size, size))


def volumes(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return one-channel volumes with a class for each voxel."""
    return torch.randn(count, 1, size, size, size), torch.randint(0, 4, (count, size, size, size))


def clips(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return short videos with one class each."""
    return torch.randn(count, 3, 8, size, size), torch.randint(0, 400, (count,))


def pairs(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return images with target images of twice the size."""
    return torch.randn(count, 3, size, size), torch.randn(count, 3, 2 * size, 2 * size)


def text(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return token ids with the next token ids."""
    return torch.randint(0, 20000, (count, size)), torch.randint(0, 20000, (count, size))


def tags(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return token ids with a tag each."""
    return torch.randint(0, 20000, (count, size)), torch.randint(0, 200, (count, size))


def vectors(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return vectors with one class each."""
    return torch.randn(count, size), torch.randint(0, 1000, (count,))


def boxes(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return images with twenty boxes each, as rows of image, class, center and size."""
    rows = count * 20
    image = torch.arange(count).repeat_interleave(20)[:, None].float()
    kind = torch.randint(0, 20, (rows, 1)).float()
    return torch.randn(count, 3, size, size), torch.cat([image, kind, torch.rand(rows, 4) * 0.5 + 0.1], 1)


def scenes(count: int, size: Any) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return images with twenty boxes each, given by corners, class and mask."""
    targets = []
    for _ in range(count):
        corner, extent = torch.rand(20, 2) * 0.5 * size, (torch.rand(20, 2) * 0.4 + 0.05) * size
        labels = torch.randint(1, 21, (20,))
        masks = torch.randint(0, 2, (20, size, size), dtype=torch.uint8)
        targets.append({"boxes": torch.cat([corner, corner + extent], 1), "labels": labels, "masks": masks})
    return torch.rand(count, 3, size, size), targets


def scenes_without_masks(count: int, size: Any) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return images with twenty boxes each, given by corners and class."""
    images, targets = scenes(count, size)
    return images, [{key: target[key] for key in ("boxes", "labels")} for target in targets]


def sum_of_losses(model: nn.Module, batch: Any) -> Tensor:
    """Return the sum of the losses of a model that receives targets and returns its losses by name."""
    images, targets = batch
    return torch.stack([loss.float() for loss in model(list(images), targets).values()]).sum()


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Return the cross entropy over classes, pixels or tokens."""
    logits = outputs if isinstance(outputs, Tensor) else outputs["out"] if "out" in outputs else outputs.logits
    if logits.dim() == 3:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return F.cross_entropy(logits, targets)


def patch_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Return the cross entropy of a segmentation head that predicts at a quarter of the size."""
    return F.cross_entropy(F.interpolate(outputs.logits, size=targets.shape[-2:], mode="bilinear"), targets)


def _vision(name: str, **options: Any) -> Model:
    def build() -> nn.Module:
        declare_operators()
        from torchvision import models

        return getattr(models, name)(**options)

    return build


def _segmentation(name: str) -> Model:
    def build() -> nn.Module:
        declare_operators()
        from torchvision.models import segmentation

        return getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=4)

    return build


def _detection(name: str, **options: Any) -> Model:
    def build() -> nn.Module:
        return getattr(import_detection(), name)(weights=None, weights_backbone=None, num_classes=21, **options)

    return build


def _video(name: str) -> Model:
    def build() -> nn.Module:
        declare_operators()
        from torchvision.models import video

        return getattr(video, name)()

    return build


def _timm(name: str, **options: Any) -> Model:
    def build() -> nn.Module:
        declare_operators()
        import timm

        return timm.create_model(name, **options)

    return build


def _transformer(model: str, config: str, **options: Any) -> Model:
    def build() -> nn.Module:
        declare_operators()
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return build


Row = tuple[str, str, Model, Callable[..., Any], Callable[..., Any], Callable[..., Any], dict[str, Any]]


def _rows() -> list[Row]:
    b16, f16, last = {"precision": "amp-bf16"}, {"precision": "amp-fp16"}, {"memory_format": "channels_last"}
    ce, det = cross_entropy, networks.detector_loss
    bert = _transformer("BertForMaskedLM", "BertConfig", num_hidden_layers=6)
    gpt2 = _transformer("GPT2LMHeadModel", "GPT2Config", n_layer=6)
    llama = _transformer(
        "LlamaForCausalLM",
        "LlamaConfig",
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    return [
        ("mlp-fp32", "mlp", networks.mlp, vectors, ce, adamw, {"batch": 512, "size": 4096}),
        ("mlp-bf16", "mlp", networks.mlp, vectors, ce, fused, {"batch": 2048, "size": 4096, **b16}),
        ("unet-fp32", "unet", networks.UNet, masks, ce, sgd, {"batch": 8, "size": 256}),
        ("unet-fp16-last", "unet", networks.UNet, masks, ce, adamw, {"batch": 16, "size": 320, **f16, **last}),
        (
            "unet-group-bf16",
            "unet",
            lambda: networks.UNet(norm="group"),
            masks,
            ce,
            sgd,
            {"batch": 8, "size": 256, **b16},
        ),
        (
            "unet-accumulate",
            "unet",
            networks.UNet,
            masks,
            ce,
            adamw,
            {"batch": 24, "micro_batch": 8, "size": 256, **b16},
        ),
        (
            "unet3d-bf16",
            "unet3d",
            lambda: networks.UNet(16, 3, 3, "instance", 1),
            volumes,
            ce_plain,
            sgd,
            {"batch": 4, "size": 96, **b16},
        ),
        (
            "unet3d-fp32",
            "unet3d",
            lambda: networks.UNet(16, 3, 3, "batch", 1),
            volumes,
            ce_plain,
            adamw,
            {"batch": 2, "size": 96},
        ),
        ("gpt-bf16", "gpt", networks.GPT, text32, ce, adamw, {"batch": 8, "size": 512, **b16}),
        ("gpt-fp32-dropout", "gpt", lambda: networks.GPT(dropout=0.1), text32, ce, adamw, {"batch": 4, "size": 512}),
        (
            "gpt-fp16-dropout",
            "gpt",
            lambda: networks.GPT(dropout=0.1),
            text32,
            ce,
            fused,
            {"batch": 8, "size": 1024, **f16},
        ),
        (
            "gpt-checkpoint",
            "gpt",
            lambda: networks.GPT(recompute="plain", dropout=0.1),
            text32,
            ce,
            adamw,
            {"batch": 8, "size": 512, **f16},
        ),
        (
            "gpt-reentrant",
            "gpt",
            lambda: networks.GPT(recompute="reentrant"),
            text32,
            ce,
            adamw,
            {"batch": 8, "size": 512, **b16},
        ),
        ("gpt-pure-bf16", "gpt", networks.GPT, text32, ce, adamw, {"batch": 8, "size": 512, "precision": "bf16"}),
        ("gpt-accumulate", "gpt", networks.GPT, text32, ce, fused, {"batch": 16, "micro_batch": 4, "size": 512, **b16}),
        ("vit-own-bf16", "vit-own", networks.ViT, images, ce, adamw, {"batch": 64, "size": 224, **b16}),
        ("vit-own-fp32", "vit-own", lambda: networks.ViT(dropout=0.1), images, ce, fused, {"batch": 32, "size": 224}),
        ("lstm-fp32", "recurrent", networks.Tagger, tags, ce, adamw, {"batch": 32, "size": 128}),
        ("lstm-fp16", "recurrent", networks.Tagger, tags, ce, adamw, {"batch": 64, "size": 256, **f16}),
        (
            "gru-fp16",
            "recurrent",
            lambda: networks.Tagger("gru", bidirectional=False),
            tags,
            ce,
            adamw,
            {"batch": 32, "size": 128, **f16},
        ),
        ("gru-fp32", "recurrent", lambda: networks.Tagger("gru", depth=3), tags, ce, sgd, {"batch": 32, "size": 256}),
        (
            "rnn-fp32",
            "recurrent",
            lambda: networks.Tagger("rnn", bidirectional=False),
            tags,
            ce,
            sgd,
            {"batch": 64, "size": 200},
        ),
        ("convnext-own", "convnext-own", networks.ConvNext, images, ce, adamw, {"batch": 32, "size": 224, **f16}),
        (
            "convnext-own-last",
            "convnext-own",
            networks.ConvNext,
            images,
            ce,
            adamw,
            {"batch": 32, "size": 224, **b16, **last},
        ),
        ("autoencoder-fp32", "autoencoder", networks.Autoencoder, pairs, F.mse_loss, sgd, {"batch": 8, "size": 128}),
        (
            "autoencoder-fp16",
            "autoencoder",
            networks.Autoencoder,
            pairs,
            F.mse_loss,
            adamw,
            {"batch": 32, "size": 128, **f16},
        ),
        ("detector-fp32", "detector", networks.Detector, boxes, det, sgd, {"batch": 8, "size": 640}),
        ("detector-fp16", "detector", networks.Detector, boxes, det, sgd, {"batch": 16, "size": 640, **f16}),
        ("detector-last", "detector", networks.Detector, boxes, det, sgd, {"batch": 16, "size": 640, **f16, **last}),
        (
            "detector-wide",
            "detector",
            lambda: networks.Detector(64, 2),
            boxes,
            det,
            adamw,
            {"batch": 8, "size": 640, **f16},
        ),
        (
            "detector-accumulate",
            "detector",
            networks.Detector,
            boxes,
            det,
            sgd,
            {"batch": 32, "micro_batch": 8, "size": 480, **f16},
        ),
        ("resnet50-fp32", "resnet", _vision("resnet50"), images, ce, sgd, {"batch": 32, "size": 224}),
        ("resnet50-fp16", "resnet", _vision("resnet50"), images, ce, sgd, {"batch": 64, "size": 224, **f16}),
        (
            "resnet50-fp16-last",
            "resnet",
            _vision("resnet50"),
            images,
            ce,
            adamw,
            {"batch": 64, "size": 224, **f16, **last},
        ),
        (
            "resnet50-bf16-accumulate",
            "resnet",
            _vision("resnet50"),
            images,
            ce,
            sgd,
            {"batch": 64, "micro_batch": 16, "size": 224, **b16, **last},
        ),
        ("resnet18-fp32-320", "resnet", _vision("resnet18"), images, ce, adamw, {"batch": 24, "size": 320}),
        ("resnet101-bf16", "resnet", _vision("resnet101"), images, ce, fused, {"batch": 32, "size": 256, **b16}),
        ("vgg16-fp32", "vgg", _vision("vgg16"), images, ce, sgd, {"batch": 32, "size": 224}),
        ("vgg16-bn-fp16", "vgg", _vision("vgg16_bn"), images, ce, sgd, {"batch": 32, "size": 224, **f16, **last}),
        ("densenet-fp32", "densenet", _vision("densenet121"), images, ce, sgd, {"batch": 32, "size": 224}),
        (
            "densenet-bf16",
            "densenet",
            _vision("densenet121"),
            images,
            ce,
            sgd,
            {"batch": 32, "size": 224, **b16, **last},
        ),
        (
            "efficientnet-fp16",
            "efficientnet",
            _vision("efficientnet_b0"),
            images,
            ce,
            adamw,
            {"batch": 64, "size": 224, **f16},
        ),
        (
            "efficientnet-last",
            "efficientnet",
            _vision("efficientnet_b0"),
            images,
            ce,
            adamw,
            {"batch": 64, "size": 224, **b16, **last},
        ),
        ("mobilenet-fp32", "mobilenet", _vision("mobilenet_v3_large"), images, ce, sgd, {"batch": 64, "size": 224}),
        (
            "mobilenet-fp16",
            "mobilenet",
            _vision("mobilenet_v3_large"),
            images,
            ce,
            sgd,
            {"batch": 128, "size": 224, **f16},
        ),
        ("convnext-fp16", "convnext", _vision("convnext_tiny"), images, ce, adamw, {"batch": 32, "size": 224, **f16}),
        ("swin-fp16", "swin", _vision("swin_t"), images, ce, adamw, {"batch": 32, "size": 224, **f16}),
        ("swin-fp32", "swin", _vision("swin_t"), images, ce, sgd, {"batch": 16, "size": 224}),
        ("vit-bf16", "vit", _vision("vit_b_16"), images, ce, fused, {"batch": 32, "size": 224, **b16}),
        ("vit-fp32", "vit", _vision("vit_b_16"), images, ce, adamw, {"batch": 32, "size": 224}),
        ("regnet-fp16", "regnet", _vision("regnet_y_3_2gf"), images, ce, sgd, {"batch": 32, "size": 224, **f16}),
        (
            "deeplab-fp16",
            "deeplab",
            _segmentation("deeplabv3_resnet50"),
            masks,
            ce,
            sgd,
            {"batch": 8, "size": 320, **f16},
        ),
        ("fcn-fp32", "fcn", _segmentation("fcn_resnet50"), masks, ce, adamw, {"batch": 8, "size": 256}),
        (
            "lraspp-bf16",
            "lraspp",
            _segmentation("lraspp_mobilenet_v3_large"),
            masks,
            ce,
            sgd,
            {"batch": 16, "size": 320, **b16},
        ),
        ("r3d-fp16", "video", _video("r3d_18"), clips, ce, sgd, {"batch": 8, "size": 112, **f16}),
        (
            "timm-vit-bf16",
            "timm-vit",
            _timm("vit_small_patch16_224"),
            images,
            ce,
            adamw,
            {"batch": 64, "size": 224, **b16},
        ),
        (
            "timm-vit-fp32",
            "timm-vit",
            _timm("vit_small_patch16_224", drop_path_rate=0.1),
            images,
            ce,
            adamw,
            {"batch": 32, "size": 224},
        ),
        ("timm-mixer", "timm-mixer", _timm("mixer_b16_224"), images, ce, adamw, {"batch": 32, "size": 224, **f16}),
        ("timm-resnetv2", "timm-resnetv2", _timm("resnetv2_50"), images, ce, sgd, {"batch": 32, "size": 224, **b16}),
        (
            "timm-efficientnetv2",
            "timm-efficientnetv2",
            _timm("efficientnetv2_rw_s"),
            images,
            ce,
            adamw,
            {"batch": 32, "size": 288, **f16, **last},
        ),
        (
            "timm-convnextv2",
            "timm-convnextv2",
            _timm("convnextv2_tiny"),
            images,
            ce,
            adamw,
            {"batch": 32, "size": 224, **b16},
        ),
        ("bert-fp16", "bert", bert, text, ce, adamw, {"batch": 16, "size": 128, **f16}),
        ("bert-fp32", "bert", bert, text, ce, fused, {"batch": 8, "size": 256}),
        ("gpt2-bf16", "gpt2", gpt2, text, ce, adamw, {"batch": 4, "size": 512, **b16}),
        ("gpt2-fp32", "gpt2", gpt2, text, ce, adamw, {"batch": 2, "size": 512}),
        ("llama-pure-bf16", "llama", llama, text, ce, fused, {"batch": 4, "size": 512, "precision": "bf16"}),
        ("llama-bf16", "llama", llama, text, ce, adamw, {"batch": 4, "size": 512, **b16}),
        (
            "hf-segformer",
            "segformer",
            _transformer("SegformerForSemanticSegmentation", "SegformerConfig", num_labels=4),
            masks,
            patch_loss,
            adamw,
            {"batch": 8, "size": 256, **f16},
        ),
        (
            "hf-vit",
            "hf-vit",
            _transformer("ViTForImageClassification", "ViTConfig", num_hidden_layers=6, num_labels=1000),
            images,
            ce,
            adamw,
            {"batch": 32, "size": 224, **b16},
        ),
    ]


def text32(count: int, size: Any) -> tuple[Tensor, Tensor]:
    """Return token ids of a vocabulary of 32,000 with the next token ids."""
    return torch.randint(0, 32000, (count, size)), torch.randint(0, 32000, (count, size))


def ce_plain(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy over voxels."""
    return F.cross_entropy(outputs, targets)


def _detectors() -> list[Config]:
    """Return torchvision's detectors.

    A trace can't see how many anchors and proposals their losses select, and a Job has one `mask_fraction` for all
    selections. RetinaNet's classification loss, the largest part, uses all anchors but the undecided ones: 1. The
    losses of FCOS and SSDlite use every anchor without selecting, and a few positive ones: 0.1. Of about 7,000
    proposals per image, the R-CNNs sample 512 for the boxes, and of those at most 128 for the masks. The fraction
    applies to the boxes that are large enough, to those that score enough, to those that NMS leaves, and to the
    samples: about 0.5 gives 512, and 0.45, one selection later, 128.
    """
    f16, b16 = {"precision": "amp-fp16"}, {"precision": "amp-bf16"}
    scaled = {"min_size": 512, "max_size": 512}
    retinanet, fcos = _detection("retinanet_resnet50_fpn", **scaled), _detection("fcos_resnet50_fpn", **scaled)
    faster, mask = _detection("fasterrcnn_resnet50_fpn", **scaled), _detection("maskrcnn_resnet50_fpn", **scaled)
    lite, boxes_only = _detection("ssdlite320_mobilenet_v3_large"), scenes_without_masks
    rows: list[tuple[str, Model, Callable[..., Any], Callable[..., Any], float, dict[str, Any]]] = [
        ("retinanet-fp32", retinanet, boxes_only, sgd, 1.0, {"batch": 4, "size": 512}),
        ("retinanet-fp16", retinanet, boxes_only, adamw, 1.0, {"batch": 8, "size": 512, **f16}),
        ("fcos-bf16", fcos, boxes_only, adamw, 0.1, {"batch": 8, "size": 512, **b16}),
        ("ssdlite-fp16", lite, boxes_only, adamw, 0.1, {"batch": 16, "size": 320, **f16}),
        ("faster-rcnn-fp32", faster, boxes_only, adamw, 0.5, {"batch": 4, "size": 512}),
        ("mask-rcnn-fp16", mask, scenes, adamw, 0.45, {"batch": 4, "size": 512, **f16}),
    ]
    return [
        Config(
            name,
            name.rpartition("-")[0],
            Job(model=model, batch=batch, step=sum_of_losses, optimizer=optimizer, mask_fraction=fraction),
            Settings(**settings),
        )
        for name, model, batch, optimizer, fraction, settings in rows
    ]


def configs() -> dict[str, Config]:
    """Return every configuration by name."""
    plain = [
        Config(name, family, Job(model=model, batch=batch, loss=loss, optimizer=optimizer), Settings(**settings))
        for name, family, model, batch, loss, optimizer, settings in _rows()
    ]
    return {config.name: config for config in (*plain, *_detectors())}
