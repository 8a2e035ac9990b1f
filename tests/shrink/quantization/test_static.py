"""int8 files of any module, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.shrink import quantize_to_onnx

pytestmark = pytest.mark.export


class Scaled(nn.Module):
    """Model of two inputs, with a weight that ONNX Runtime doesn't quantize."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 32, 3)
        self.up = nn.ConvTranspose1d(32, 3, 2)
        self.linear = nn.Linear(7, 64)

    def forward(self, signal: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        features = self.up(nn.functional.relu(self.conv(signal))) * factor
        return features, self.linear(features)


@pytest.fixture
def model() -> Scaled:
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    return Scaled()


def inputs(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2, 8, generator=generator), torch.rand(1, generator=generator)


def test_the_file_computes_nearly_the_same(model: Scaled, tmp_path: Path) -> None:
    result = quantize_to_onnx(model, [inputs(seed) for seed in range(8)], tmp_path / "m.onnx")
    assert result.file_bytes == (tmp_path / "m.onnx").stat().st_size
    assert result.weight_bytes == 4 * sum(parameter.numel() for parameter in model.parameters())
    assert result.quantized_layers + len(result.float_layers) == 3
    assert 0 < result.difference < 0.1
    assert model.training


def test_wrong_input_is_one_sentence(model: Scaled, tmp_path: Path) -> None:
    calibration = [inputs(0)]
    for arguments, message in (
        ((model, [], tmp_path / "m.onnx"), "there are no inputs to calibrate with"),
        ((model, calibration, tmp_path / "m.pt"), "use a name that ends in .onnx"),
        ((model, calibration, tmp_path / "no" / "m.onnx"), "can't be written"),
        ((nn.ReLU(), [(torch.ones(3),)], tmp_path / "m.onnx"), "no convolution or linear layer"),
        ((model, [(torch.ones(3),)], tmp_path / "m.onnx"), "torch can't export the model"),
    ):
        with pytest.raises(UsageError, match=message):
            quantize_to_onnx(*arguments)
    assert not list(tmp_path.iterdir())
