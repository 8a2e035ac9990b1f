"""The request of a quantization-aware training, saved in its folder, so that it is resumed without its flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ... import document
from ...detect import Hyperparameters, TrainConfig
from ...errors import InvalidFile
from ...files import write_atomically
from ..export import ONNX, ExportRequest

# A trained network needs small steps and no warm-up.
QAT_HYPERPARAMETERS = Hyperparameters(lr0=1e-3, lrf=0.1, warmup_epochs=0.0)
_FILE, _KIND, _VERSION = "quantize.json", "quantization", 1


@dataclass(frozen=True)
class QuantizeRequest:
    """Request of a quantization with training.

    Attributes:
        config: the training; its weights are the detector to quantize.
        out: the file; next to the weights if None.
    """

    config: TrainConfig
    out: Path | None = None

    @property
    def onnx(self) -> ExportRequest:
        """The export."""
        config = self.config
        assert config.weights is not None  # noqa: S101  checked by the command
        out = self.out or config.weights.with_name(f"{config.weights.stem}-int8-qat.onnx")
        return ExportRequest(config.weights, config.data, config.imgsz, int8=True, out=out)


def save_request(request: QuantizeRequest) -> None:
    """Write the request into its folder, with absolute paths."""
    config, onnx = request.config, request.onnx
    run_dir = config.run_dir.absolute()
    config = replace(config, weights=onnx.weights.absolute(), data=config.data.absolute(), run_dir=run_dir)
    saved = document.write(_KIND, _VERSION, QuantizeRequest(config, ONNX.target(onnx).absolute()))
    write_atomically(run_dir / _FILE, lambda file: file.write(document.dumps(saved).encode()))


def load_quantize_request(folder: Path) -> QuantizeRequest:
    """Return the request of a quantization; its folder may have been moved.

    Raises:
        InvalidFile: the file is damaged.
    """
    path = folder / _FILE
    try:
        request = document.read(_KIND, _VERSION, QuantizeRequest, document.load(path))
    except InvalidFile as error:
        raise InvalidFile(f"{path} can't be used: {error.why}", "start a new run") from None
    return replace(request, config=replace(request.config, run_dir=folder))
