from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from oomph.batch import batch_format
from oomph.detect import DetectionLoss, LossGains, Yolov5, yolov5
from oomph.errors import UsageError

IMGSZ = 96


def scene(images: int = 8, boxes: int = 40, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return images with uneven numbers of boxes; some share cells, some touch the border, one image has none."""
    gen = torch.Generator().manual_seed(seed)
    pixels = torch.rand(images, 3, IMGSZ, IMGSZ, generator=gen)
    image = (torch.rand(boxes, generator=gen) ** 2 * (images - 1)).floor()
    center = torch.rand(boxes, 2, generator=gen)
    center[:4] = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.5, 0.999], [0.25, 0.5]])
    size = 0.05 + 0.6 * torch.rand(boxes, 2, generator=gen) ** 2
    label = torch.randint(classes, (boxes,), generator=gen)
    targets = torch.cat((image[:, None], label[:, None].float(), center, size), 1)
    return pixels, torch.cat((targets, targets[:5]))  # with duplicates


def network(classes: int = 4) -> Yolov5:
    torch.manual_seed(0)
    return yolov5("n", classes=classes)


def positives(row: Tensor, anchors: Tensor, height: int, width: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the positives of one box, in plain Python: order of writing, anchor, row, column."""
    x, y, w, h = (row[2:] * torch.tensor([width, height, width, height])).tolist()
    cells = [(0, int(x), int(y))]
    if x % 1 < 0.5 and x > 1:
        cells.append((1, int(x) - 1, int(y)))
    if y % 1 < 0.5 and y > 1:
        cells.append((2, int(x), int(y) - 1))
    if (width - x) % 1 < 0.5 and width - x > 1:
        cells.append((3, int(x) + (1 if x % 1 else 0), int(y)))
    if (height - y) % 1 < 0.5 and height - y > 1:
        cells.append((4, int(x), int(y) + (1 if y % 1 else 0)))
    for index, (aw, ah) in enumerate(anchors.tolist()):
        if max(w / aw, aw / w, h / ah, ah / h) < 4:
            yield from ((place, index, min(j, height - 1), min(i, width - 1)) for place, i, j in cells)


def ciou(a: list[float], b: list[float]) -> float:
    left, right = max(a[0] - a[2] / 2, b[0] - b[2] / 2), min(a[0] + a[2] / 2, b[0] + b[2] / 2)
    top, bottom = max(a[1] - a[3] / 2, b[1] - b[3] / 2), min(a[1] + a[3] / 2, b[1] + b[3] / 2)
    shared = max(right - left, 0) * max(bottom - top, 0)
    iou = shared / (a[2] * a[3] + b[2] * b[3] - shared)
    wide = max(a[0] + a[2] / 2, b[0] + b[2] / 2) - min(a[0] - a[2] / 2, b[0] - b[2] / 2)
    high = max(a[1] + a[3] / 2, b[1] + b[3] / 2) - min(a[1] - a[3] / 2, b[1] - b[3] / 2)
    away = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
    shape = 4 / math.pi**2 * (math.atan(b[2] / b[3]) - math.atan(a[2] / a[3])) ** 2
    return iou - away / (wide**2 + high**2) - shape * shape / (1 - iou + shape)


def slow_loss(model: Yolov5, levels: list[Tensor], targets: Tensor) -> tuple[float, float, float]:
    """Return box, objectness and class loss, computed by a loop over boxes."""
    box = objectness = classes = 0.0
    for index, level in enumerate(levels):
        batch, _, height, width, _ = level.shape
        anchors = model.head.anchors[index]
        written: list[tuple[tuple[int, int, int], tuple[int, ...], float]] = []
        boxes, odds = [], []
        for number, row in enumerate(targets):
            for place, anchor, j, i in positives(row, anchors, height, width):
                raw = level[int(row[0]), anchor, j, i]
                sigmoid = raw.sigmoid().tolist()
                guess = [2 * sigmoid[0] - 0.5, 2 * sigmoid[1] - 0.5]
                guess += [(2 * sigmoid[2 + k]) ** 2 * float(anchors[anchor, k]) for k in (0, 1)]
                x, y, w, h = (row[2:] * torch.tensor([width, height, width, height])).tolist()
                value = ciou(guess, [x - i, y - j, w, h])
                boxes.append(1 - value)
                wanted = F.one_hot(row[1].long(), model.classes).float()
                odds.append(float(F.binary_cross_entropy_with_logits(raw[5:], wanted)))
                written.append(((place, anchor, number), (int(row[0]), anchor, j, i), max(value, 0.0)))
        goal = torch.zeros(batch, 3, height, width)
        for _, cell, value in sorted(written):
            goal[cell] = value
        objectness += (4.0, 1.0, 0.4)[index] * float(F.binary_cross_entropy_with_logits(level[..., 4], goal))
        box += sum(boxes) / len(boxes) if boxes else 0.0
        classes += sum(odds) / len(odds) if odds else 0.0
    return 0.05 * box, objectness * (IMGSZ / 640) ** 2, 0.5 * model.classes / 80 * classes


def test_loss_equals_a_loop_over_boxes() -> None:
    model = network()
    images, targets = scene()
    with torch.no_grad():
        levels = model(images)
        parts = DetectionLoss(model, imgsz=IMGSZ).parts(levels, targets)
    expected = slow_loss(model, levels, targets)
    assert [float(parts.box), float(parts.obj), float(parts.cls)] == pytest.approx(expected, rel=1e-5)
    assert float(parts.total) == pytest.approx(sum(expected) * len(images), rel=1e-5)


def gradient(
    model: Yolov5, loss: DetectionLoss, batch: tuple[Tensor, Tensor], micro_batches: int, *, naive: bool
) -> Tensor:
    model.zero_grad()
    norm = loss.normalizer(batch)
    for images, targets in batch_format("yolo").split(batch, micro_batches):
        value = loss(model(images), targets) / micro_batches if naive else loss(model(images), targets, norm)
        value.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double()


def frozen_norms(model: Yolov5) -> Yolov5:
    """BatchNorm in eval mode halfway to the statistics of a batch, the head still training."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 0.5
    with torch.no_grad():
        model(scene()[0])
    model.eval()
    model.head.train()
    return model


@pytest.mark.medium
def test_micro_batches_sum_to_the_gradient_of_the_batch_but_naive_averaging_does_not() -> None:
    model = frozen_norms(network())
    loss = DetectionLoss(model, imgsz=IMGSZ)
    batch = scene()
    whole = gradient(model, loss, batch, 1, naive=False)
    for micro_batches in (2, 4, 8):
        split = gradient(model, loss, batch, micro_batches, naive=False)
        assert float((split - whole).norm() / whole.norm()) < 1e-5
        off = gradient(model, loss, batch, micro_batches, naive=True)
        assert float((off - whole).norm() / whole.norm()) > 1e-2
    assert torch.equal(whole, gradient(model, loss, batch, 1, naive=True))


def test_normalizer_counts_the_positives_of_the_loss() -> None:
    model = network()
    images, targets = scene()
    norm = DetectionLoss(model).normalizer((images, targets))
    counted = DetectionLoss(model).cpu_normalizer()((images, targets))
    assert torch.equal(counted.counts, norm.counts)
    assert counted.images == norm.images
    expected = [
        sum(1 for row in targets for _ in positives(row, anchors, IMGSZ // stride, IMGSZ // stride))
        for anchors, stride in zip(model.head.anchors, (8, 16, 32), strict=True)
    ]
    assert norm.counts.tolist() == expected
    assert norm.images == 8


def test_gradients_agree_with_finite_differences() -> None:
    model = network(classes=3)
    images, targets = scene(images=2, boxes=6, classes=3)
    loss = DetectionLoss(model, imgsz=IMGSZ)
    with torch.no_grad():
        levels = [level.clone() for level in model(images)]
    moving = [level.clone().requires_grad_() for level in levels]
    loss(moving, targets).backward()
    norm = loss.normalizer((images, targets))
    grads = [level.grad for level in moving]
    for index in range(3):
        grad = grads[index]
        assert grad is not None
        # Objectness aims at the overlap, which moves with the boxes but isn't differentiated: leave boxes out.
        flat = grad.clone()
        flat[..., :4] = 0
        spot = int(flat.abs().argmax())
        ends = []
        for step in (-1e-2, 1e-2):
            shifted = [level.clone() for level in levels]
            shifted[index] = shifted[index].contiguous()
            shifted[index].view(-1)[spot] += step
            ends.append(float(loss(shifted, targets, norm).double()))
        slope = (ends[1] - ends[0]) / 2e-2
        assert slope == pytest.approx(float(grad.contiguous().view(-1)[spot]), rel=5e-2)


@pytest.mark.parametrize("boxes", [torch.zeros(0, 6), torch.tensor([[0, 0, 0.5, 0.5, 0.001, 0.001]])])
def test_loss_without_positives_is_objectness_alone(boxes: Tensor) -> None:
    model = network()
    loss = DetectionLoss(model, imgsz=IMGSZ)
    parts = loss.parts(model(torch.rand(2, 3, IMGSZ, IMGSZ)), boxes)
    assert float(parts.box) == float(parts.cls) == 0.0
    assert float(parts.obj) > 0
    parts.total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_boxes_of_zero_size_give_finite_gradients() -> None:
    model = network()
    rows = torch.tensor([[0, 0, 0.5, 0.5, 0.0, 0.0], [0, 1, 0.5, 0.5, 0.3, 0.0], [1, 1, 1.0, 0.0, 0.4, 0.4]])
    loss = DetectionLoss(model)(model(torch.rand(2, 3, IMGSZ, IMGSZ)), rows)
    loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_a_single_class_has_no_class_loss() -> None:
    model = network(classes=1)
    images, targets = scene(classes=1)
    parts = DetectionLoss(model).parts(model(images), targets)
    assert float(parts.cls) == 0.0
    assert float(parts.box) > 0


def test_label_smoothing_interpolates_between_true_and_uniform_targets() -> None:
    # The loss is linear in its targets, so it can be checked at both ends.
    model = network()
    images, targets = scene()
    levels = [level.detach() for level in model(images)]

    def classes(smoothing: float) -> float:
        return float(DetectionLoss(model, label_smoothing=smoothing).parts(levels, targets).cls)

    true, even = classes(0.0), classes(1.0)
    assert true != pytest.approx(even)
    assert classes(0.1) == pytest.approx(0.9 * true + 0.1 * even)


@pytest.mark.medium
def test_mixed_precision_loss_is_close_and_in_fp32() -> None:
    model = network()
    images, targets = scene()
    loss = DetectionLoss(model)
    plain = loss(model(images), targets)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = loss(model(images), targets)
    assert mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(plain.item(), rel=2e-2)
    mixed.backward()


def test_gains_scale_with_image_size_and_classes() -> None:
    gains = DetectionLoss(network(classes=8), LossGains(1.0, 2.0, 4.0), imgsz=320).gains
    assert (gains.box, gains.obj, gains.cls) == (1.0, 0.5, 0.4)


def test_outputs_of_eval_mode_are_accepted() -> None:
    model = network().eval()
    images, targets = scene()
    loss = DetectionLoss(model)
    with torch.no_grad():
        outputs = model(images)
        assert torch.equal(loss(outputs, targets), loss(outputs[1], targets))
        assert torch.equal(loss(tuple(outputs[1]), targets), loss(outputs[1], targets))


class Launches(TorchDispatchMode):
    """Records the operations that launch kernels: all but views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_loss_launches_few_kernels_and_never_synchronizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernel launches limit a fast GPU, and creating a tensor from numbers waits for it."""
    model = network()
    images, targets = scene()
    loss, levels = DetectionLoss(model), model(images)
    loss(levels, targets)
    for name in ("new_tensor", "tolist", "item"):  # cached after the first call
        monkeypatch.setattr(Tensor, name, lambda *_, name=name: pytest.fail(f"{name} waits for the GPU"))
    with Launches() as launches:
        value = loss(levels, targets)
    assert len(launches.names) < 170
    # where with a scalar synchronizes, and so does the backward of prod.
    assert not any("aten.where" in name or "aten.prod" in name for name in launches.names)
    with Launches() as launches:
        torch.autograd.grad(value, levels)
    assert len(launches.names) < 170


@pytest.mark.medium
def test_caches_of_real_and_fake_tensors_are_separate() -> None:
    images, targets = scene()
    real = network()
    loss = DetectionLoss(real)
    before = loss([level.detach() for level in real(images)], targets)
    shapes = [level.shape for level in real(images)]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        levels = [torch.empty(shape) for shape in shapes]
        assert loss(levels, mode.from_tensor(targets)).shape == ()
        fresh = DetectionLoss(real)
        fresh(levels, mode.from_tensor(targets))
    assert torch.equal(fresh([level.detach() for level in real(images)], targets), before)


def test_other_models_are_rejected() -> None:
    with pytest.raises(UsageError, match="the model is a Linear"):
        DetectionLoss(torch.nn.Linear(1, 1))
