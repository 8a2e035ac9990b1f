"""Plain PyTorch networks, one of each common kind."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def mlp(width: int = 4096, depth: int = 6) -> nn.Module:
    """Return a multilayer perceptron."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU(inplace=True), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(width, 1000))


class ConvBlock(nn.Sequential):
    """Convolution, BatchNorm, ReLU, in two or three dimensions."""

    def __init__(self, ins: int, outs: int, dims: int = 2, norm: str = "batch") -> None:
        conv = nn.Conv2d if dims == 2 else nn.Conv3d
        norms = {
            ("batch", 2): nn.BatchNorm2d,
            ("batch", 3): nn.BatchNorm3d,
            ("instance", 2): nn.InstanceNorm2d,
            ("instance", 3): nn.InstanceNorm3d,
        }
        layer = nn.GroupNorm(8, outs) if norm == "group" else norms[norm, dims](outs, affine=True)
        super().__init__(conv(ins, outs, 3, padding=1, bias=False), layer, nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Encoder and decoder with skip connections."""

    def __init__(self, width: int = 32, depth: int = 4, dims: int = 2, norm: str = "batch", ins: int = 3) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth + 1)]
        up = nn.ConvTranspose2d if dims == 2 else nn.ConvTranspose3d
        self.pool: nn.Module = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        self.down = nn.ModuleList(
            nn.Sequential(ConvBlock(a, b, dims, norm), ConvBlock(b, b, dims, norm))
            for a, b in zip([ins, *sizes[:-1]], sizes, strict=True)
        )
        self.up = nn.ModuleList(up(b, a, 2, stride=2) for a, b in itertools.pairwise(sizes))
        self.merge = nn.ModuleList(
            nn.Sequential(ConvBlock(2 * size, size, dims, norm), ConvBlock(size, size, dims, norm))
            for size in sizes[:-1]
        )
        self.head = (nn.Conv2d if dims == 2 else nn.Conv3d)(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        for up, merge, skip in zip(reversed(self.up), reversed(self.merge), reversed(skips[:-1]), strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        return self.head(x)


class Attention(nn.Module):
    """Multi-head self-attention with `scaled_dot_product_attention`."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=dropout)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Transformer block, optionally checkpointed."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float, recompute: str = "") -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal, dropout=dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )
        self.recompute = recompute

    def inner(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute and self.training:
            return checkpoint(self.inner, x, use_reentrant=self.recompute == "reentrant")
        return self.inner(x)


class GPT(nn.Module):
    """Decoder-only language model with tied embeddings."""

    def __init__(
        self, width: int = 768, depth: int = 6, heads: int = 12, dropout: float = 0.0, recompute: str = ""
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(32000, width), nn.Embedding(2048, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=True, dropout=dropout, recompute=recompute) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 32000, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ViT(nn.Module):
    """Vision transformer."""

    def __init__(
        self, width: int = 384, depth: int = 12, heads: int = 6, dropout: float = 0.0, size: int = 224
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, stride=16)
        self.places = nn.Parameter(torch.zeros(1, (size // 16) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False, dropout=dropout) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class Tagger(nn.Module):
    """Recurrent layers over tokens."""

    def __init__(self, kind: str = "lstm", width: int = 512, depth: int = 2, *, bidirectional: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(20000, width)
        layer = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[kind]
        self.layers = layer(width, width, depth, batch_first=True, bidirectional=bidirectional, dropout=0.2)
        self.head = nn.Linear(width * (2 if bidirectional else 1), 200)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(ids))[0])


class ConvNext(nn.Module):
    """ConvNeXt: depthwise convolutions, LayerNorm over channels, permutes."""

    class Layer(nn.Module):
        """Residual layer."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.scale = nn.Parameter(torch.full((width,), 1e-6))

        def forward(self, x: Tensor) -> Tensor:
            y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1))) * self.scale
            return x + y.permute(0, 3, 1, 2)

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.stages = nn.ModuleList()
        for level, depth in enumerate((3, 3, 9, 3)):
            size = width * 2**level
            shrink = [nn.Conv2d(size // 2, size, 2, stride=2)] if level else []
            self.stages.append(nn.Sequential(*shrink, *(ConvNext.Layer(size) for _ in range(depth))))
        self.head = nn.Linear(width * 8, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


class Autoencoder(nn.Module):
    """Strided and transposed convolutions, GroupNorm, SiLU and bilinear upsampling."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()

        def step(outs: int) -> list[nn.Module]:
            return [nn.GroupNorm(8, outs), nn.SiLU(), nn.Conv2d(outs, outs, 3, padding=1), nn.SiLU()]

        self.down = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            *(
                layer
                for i in range(3)
                for layer in (nn.Conv2d(width * 2**i, width * 2 ** (i + 1), 4, 2, 1), *step(width * 2 ** (i + 1)))
            ),
        )
        self.up = nn.Sequential(
            *(
                layer
                for i in reversed(range(3))
                for layer in (nn.ConvTranspose2d(width * 2 ** (i + 1), width * 2**i, 4, 2, 1), *step(width * 2**i))
            ),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))


class _Conv(nn.Sequential):
    def __init__(self, ins: int, outs: int, size: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(ins, outs, size, stride, (size - 1) // 2, bias=False),
            nn.BatchNorm2d(outs, 1e-3, 0.03),
            nn.SiLU(inplace=True),
        )


class _C3(nn.Module):
    def __init__(self, ins: int, outs: int, depth: int) -> None:
        super().__init__()
        half = outs // 2
        self.first, self.skip, self.last = _Conv(ins, half), _Conv(ins, half), _Conv(outs, outs)
        self.inner = nn.ModuleList(nn.Sequential(_Conv(half, half), _Conv(half, half, 3)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for inner in self.inner:
            y = y + inner(y)
        return self.last(torch.cat([y, self.skip(x)], 1))


class Detector(nn.Module):
    """One-stage detector shaped like YOLOv5; returns three levels of raw predictions."""

    def __init__(self, width: int = 32, depth: int = 1, classes: int = 20) -> None:
        super().__init__()
        w, self.outputs = width, classes + 5
        self.stem = _Conv(3, w, 6, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(
                _Conv(w * 2**i, w * 2 ** (i + 1), 3, 2),
                _C3(w * 2 ** (i + 1), w * 2 ** (i + 1), depth * (1 if i in {0, 3} else i + 1)),
            )
            for i in range(4)
        )
        self.pool_in, self.pool_out = _Conv(16 * w, 8 * w), _Conv(32 * w, 16 * w)
        self.lateral = nn.ModuleList([_Conv(16 * w, 8 * w), _Conv(8 * w, 4 * w)])
        self.top = nn.ModuleList([_C3(16 * w, 8 * w, depth), _C3(8 * w, 4 * w, depth)])
        self.heads = nn.ModuleList(nn.Conv2d(c, 3 * self.outputs, 1) for c in (4 * w, 8 * w, 16 * w))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        pooled = [self.pool_in(x)]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        deep = self.pool_out(torch.cat(pooled, 1))
        middle = self.lateral[0](deep)
        mid = self.top[0](torch.cat([F.interpolate(middle, scale_factor=2.0), levels[2]], 1))
        low = self.lateral[1](mid)
        fine = self.top[1](torch.cat([F.interpolate(low, scale_factor=2.0), levels[1]], 1))
        out = []
        for head, feature in zip(self.heads, (fine, mid, deep), strict=True):
            y = head(feature)
            n, _, h, w = y.shape
            out.append(y.view(n, 3, self.outputs, h, w).permute(0, 1, 3, 4, 2).contiguous())
        return out


def detector_loss(outputs: list[Tensor], targets: Tensor) -> Tensor:
    """Return a YOLOv5-like loss: anchors matched by ratio, positives matched by a mask, objectness of every cell."""
    total = outputs[0].new_zeros(())
    for level, raw in enumerate(outputs):
        n, _, h, w, _ = raw.shape
        scale = torch.tensor([w, h, w, h], device=raw.device)
        boxes = targets[:, 2:] * scale
        anchors = torch.tensor([[1.25, 1.6], [2.0, 3.75], [4.1, 2.9]], device=raw.device)
        ratio = boxes[None, :, 2:] / anchors[:, None]
        keep = torch.max(ratio, 1 / ratio).amax(2) < 4
        anchor = torch.arange(3, device=raw.device)[:, None].expand_as(keep)[keep]
        matched = boxes[None].expand(3, -1, -1)[keep]
        image = targets[None, :, 0].expand(3, -1)[keep].long()
        kind = targets[None, :, 1].expand(3, -1)[keep].long()
        cell = matched[:, :2].long()
        x, y = cell[:, 0].clamp(0, w - 1), cell[:, 1].clamp(0, h - 1)
        predictions = raw[image, anchor, y, x]
        objectness = torch.zeros_like(raw[..., 4])
        if matched.shape[0]:
            center = predictions[:, :2].sigmoid() * 2 - 0.5
            size = (predictions[:, 2:4].sigmoid() * 2) ** 2 * anchors[anchor]
            total = (
                total
                + (torch.cat([center, size], 1) - torch.cat([matched[:, :2] - cell, matched[:, 2:]], 1)).abs().mean()
            )
            objectness[image, anchor, y, x] = 1.0
            onehot = torch.zeros_like(predictions[:, 5:]).scatter_(1, kind[:, None], 1.0)
            total = total + F.binary_cross_entropy_with_logits(predictions[:, 5:], onehot)
        total = total + F.binary_cross_entropy_with_logits(raw[..., 4], objectness) * (4.0, 1.0, 0.4)[level]
    return total * n
