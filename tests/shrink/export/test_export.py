from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from oomph.errors import OomphError
from oomph.shrink.export._export import Exporter, ExportRequest, shrink_by_export


def fail(*_: object) -> NoReturn:
    raise RuntimeError("no kernel for\nthis layer")


@pytest.mark.medium
def test_a_layer_that_a_format_does_not_have_is_one_sentence(folder: Path) -> None:
    exporter = Exporter("onnx", ".onnx", (), fail, fail)
    request = ExportRequest(folder / "n.pt", folder / "data/data.yaml", 64, out=folder / "failed.onnx")
    message = r"^ONNX can't export this network \(RuntimeError: no kernel for this layer\); use another format"
    with pytest.raises(OomphError, match=message):
        shrink_by_export(exporter, request, lambda _: None)
    assert not (folder / "failed.onnx").exists()
