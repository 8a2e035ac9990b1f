"""The request of a quantization with training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...detect import Hyperparameters
from .._request_file import RequestFile, TrainingRequest
from ..export import ExportRequest

# A trained network needs small steps and no warm-up.
QAT_HYPERPARAMETERS = Hyperparameters(lr0=1e-3, lrf=0.1, warmup_epochs=0.0)


@dataclass(frozen=True)
class QuantizeRequest(TrainingRequest):
    """Request of a quantization with training.

    Attributes:
        config: the training; its weights are the detector to quantize.
        out: the file; next to the weights if None.
    """

    out: Path | None = None

    @property
    def onnx(self) -> ExportRequest:
        """The export."""
        config = self.config
        assert config.weights is not None  # noqa: S101  checked by the command
        out = self.out or config.weights.with_name(f"{config.weights.stem}-int8-qat.onnx")
        return ExportRequest(config.weights, config.data, config.imgsz, int8=True, out=out)


QUANTIZE_FILE = RequestFile("quantize.json", "quantization", QuantizeRequest)
