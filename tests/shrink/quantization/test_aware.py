from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.shrink import finish_qat, prepare_qat, quantize_to_onnx

from ...recovery.faults import FaultIn


class Classifier(nn.Module):
    """Classifier of small images with convolutions, BatchNorm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.classes = nn.Linear(16 * 16, 4)

    def forward(self, images: Tensor) -> Tensor:
        features = nn.functional.relu(self.norm(self.first(images)))
        features = nn.functional.max_pool2d(nn.functional.relu(self.second(features)), 2)
        outputs: Tensor = self.classes(features.flatten(1))
        return outputs


def samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images of a bright bar and noise, and where the bar is."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = torch.randn(count, 1, 8, 8, generator=generator)
    for image, label in zip(images, labels, strict=True):
        image[0, 2 * int(label) : 2 * int(label) + 2] += 0.8
    return images, labels


def train(model: nn.Module, steps: int, lr: float) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for step in range(steps):
        images, labels = samples(64, step)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def unbalance(model: Classifier) -> None:
    """Multiply a channel by a thousand and divide it in the next layer: nothing changes in float, but in int8."""
    with torch.no_grad():
        model.norm.weight[0] *= 1000
        model.norm.bias[0] *= 1000
        model.second.weight[:, 0] /= 1000


def test_a_copy_is_prepared_and_finished() -> None:
    model = Classifier()
    prepared = prepare_qat(model, skip=["classes"])
    assert prepared.quantized_layers == ("first", "second")
    assert prepared.float_layers == ("classes",)
    images = torch.randn(2, 1, 8, 8)
    finished = finish_qat(prepared.model)
    assert not finished.training
    assert type(finished.first) is type(model.first) is nn.Conv2d
    assert type(prepared.model.first) is not nn.Conv2d
    model.eval()
    assert torch.equal(finished(images), model(images))
    assert not torch.equal(prepared.model.eval()(images), model(images))


def test_wrong_input_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="the model has no layer 'head'"):
        prepare_qat(Classifier(), skip=["head"])
    with pytest.raises(UsageError, match="none of the 1 layers with weights can be quantized"):
        prepare_qat(nn.Sequential(nn.Embedding(3, 4)))


@pytest.mark.export
def test_training_recovers_what_calibration_loses(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = Classifier()
    train(model, 60, 0.01)
    unbalance(model)
    images, labels = samples(400, 1000)

    def accuracy(network: nn.Module, name: str) -> tuple[float, float]:
        """Return the accuracy of a model in float, and that of its int8 file."""
        calibration = [(samples(1, seed)[0],) for seed in range(2000, 2032)]
        shapes = {"images": {0: torch.export.Dim("batch", min=1, max=1024)}}
        result = quantize_to_onnx(network, [(images[:4],), *calibration], tmp_path / name, shapes)
        assert result.float_layers == ()
        assert result.quantized_layers == 3
        outputs = onnxruntime.InferenceSession(result.path).run(None, {"images": images.numpy()})[0]
        with torch.no_grad():
            expected = network.eval()(images)
        return (
            float((expected.argmax(1) == labels).float().mean()),
            float(np.mean(outputs.argmax(1) == labels.numpy())),
        )

    before, calibrated = accuracy(model, "calibrated.onnx")
    prepared = prepare_qat(model).model.train()
    train(prepared, 60, 0.002)
    _, trained = accuracy(finish_qat(prepared), "trained.onnx")
    assert before > 0.9
    assert calibrated < 0.5
    assert trained > 0.85
    with torch.no_grad():
        simulated = float((prepared.eval()(images).argmax(1) == labels).float().mean())
    assert simulated == pytest.approx(trained, abs=0.02)


def test_a_guarded_step_that_runs_out_of_memory_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    batch = samples(8, 0)
    expected, repeated = (prepare_qat(Classifier()).model for _ in range(2))
    repeated.load_state_dict(expected.state_dict())
    reports = []
    for model, failures, micro_batch in ((expected, 0, 4), (repeated, 1, None)):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        guard = oomph.guard(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), micro_batch=micro_batch)
        with FaultIn("convolution_backward", failures) as fault:
            reports.append(guard.step(batch))
        assert fault.raised == failures
    assert [report.retries for report in reports] == [0, 1]
    assert [report.micro_batches for report in reports] == [2, 2]
    for name, tensor in expected.state_dict().items():  # statistics of BatchNorm too
        assert torch.equal(repeated.state_dict()[name], tensor), name
    assert "4 layers (the first is 'first') round their values in the range of the micro-batch" in caplog.text
