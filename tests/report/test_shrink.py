from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oomph.report import ShrinkReport, emit
from oomph.shrink import Latency, OutputDifference, ShrinkResult, VariantReport
from oomph.units import MIB


def variant(name: str, file: str | None, size: int, milliseconds: float, map50: float) -> VariantReport:
    seconds = milliseconds / 1000
    latency = Latency(seconds, seconds * 0.9, seconds * 1.2, runs=40, threads=1)
    parameters = 1_769_329 if name.startswith("PyTorch") else 1_764_577
    return VariantReport(
        name, file, size * MIB, parameters, size * 10 * MIB, latency, {"mAP50": map50, "mAP50-95": map50 / 2}
    )


RESULT = ShrinkResult(
    "onnx",
    640,
    "val",
    (
        variant("PyTorch fp32", "best.pt", 8, 40.0, 0.51),
        variant("ONNX fp32", None, 8, 20.0, 0.5101),
        variant("ONNX int8", "best-int8.onnx", 2, 35.0, 0.5),
    ),
    (OutputDifference("ONNX fp32", 3.3e-6, 2.5e-7, 4), OutputDifference("ONNX int8", 0.46, 0.028, 4)),
    ("model.24.m.0", "model.24.m.1", "model.24.m.2"),
)


def test_variants_stand_side_by_side_with_differences(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ShrinkReport(RESULT), as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "PyTorch fp32 ONNX fp32 ONNX int8",
        "parameters 1,769,329 1,764,577 (−0.3 %) 1,764,577 (−0.3 %)",  # noqa: RUF001
        "file 8 MiB 8 MiB (same) 2 MiB (−75 %)",  # noqa: RUF001
        "inference memory 80 MiB 80 MiB (same) 20 MiB (−75 %)",  # noqa: RUF001
        "latency 40 ms [36, 48] 20 ms [18, 24] (−50 %) 35 ms [31.5, 42] (−12 %)",  # noqa: RUF001
        "mAP50 0.510 0.510 (same) 0.500 (−0.010)",  # noqa: RUF001
        "mAP50-95 0.255 0.255 (same) 0.250 (−0.005)",  # noqa: RUF001
        "",
        "ONNX fp32: raw outputs differ from PyTorch fp32 by at most 3.3e-06, on average 2.5e-07 (4 images)",
        "ONNX int8: raw outputs differ from PyTorch fp32 by at most 0.46, on average 0.028 (4 images)",
        "not quantized: model.24.m.0, model.24.m.1, model.24.m.2",
        "ONNX int8 is slower than ONNX fp32 on this CPU: 1.75 times the latency",
        (
            "Image size 640. Latency: the network on one image, CPU, 1 thread, median and quartiles of 40 runs. "
            "Inference memory: peak RSS of a process that does this, libraries included. Scores: val split."
        ),
        "written: best-int8.onnx",
    ]


@pytest.mark.parametrize(("milliseconds", "lines"), [(19.0, 0), (30.0, 1)])
def test_int8_is_compared_with_the_fastest_float(
    milliseconds: float, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = variant("ONNX int8 QAT", "best-int8-qat.onnx", 2, milliseconds, 0.5)
    emit(ShrinkReport(replace(RESULT, variants=(*RESULT.variants, trained))), as_json=False)
    line = "ONNX int8 QAT is slower than ONNX fp32 on this CPU: 1.50 times the latency"
    assert capsys.readouterr().out.count(line) == lines


def test_the_document_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    emit(ShrinkReport(RESULT), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["method"], len(document["variants"])) == ("shrink", "onnx", 3)
    assert document["variants"][1]["file"] is None
    assert document["variants"][2]["latency"]["upper"] == pytest.approx(0.042)
    assert document["differences"][1]["largest"] == 0.46
