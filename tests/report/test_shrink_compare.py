from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from oomph.report import CompareReport, compare_plot, emit, save_compare_plot
from oomph.report._shrink_compare_plot import _LATENCY, _MEMORY, _chart
from oomph.shrink import CompareResult, Latency, Recommendation, TrainingMemory, VariantReport, find_variant_front
from oomph.units import MIB


def variant(name: str, file: float, memory: float, milliseconds: float, score: float) -> VariantReport:
    median = milliseconds / 1000
    latency = Latency(median, 0.9 * median, 1.2 * median, runs=40, threads=1)
    training = TrainingMemory(640 * MIB, None, 16, "cpu") if name.endswith(".pt") else None
    scores = {"mAP50": 2 * score, "mAP50-95": score}
    return VariantReport(name, name, int(file * MIB), 1_769_329, int(memory * MIB), latency, scores, training)


def compared(*variants: VariantReport) -> CompareResult:
    front = tuple(item.name for item in find_variant_front(variants))
    return CompareResult(640, "val", variants, front, Recommendation(front[0], ("Recommended: this one.",)))


TWO = compared(variant("best.pt", 8, 300, 40, 0.3), variant("best-int8.onnx", 2, 90, 10, 0.296))
THREE = compared(*TWO.variants, variant("best.onnx", 8, 100, 20, 0.3))


def printed(result: CompareResult, capsys: pytest.CaptureFixture[str]) -> list[str]:
    emit(CompareReport(result), as_json=False)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_two_variants_stand_side_by_side_with_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(TWO, capsys)[:10] == [
        "best.pt best-int8.onnx",
        "parameters 1,769,329 1,769,329 (same)",
        "file 8 MiB 2 MiB (−75 %)",  # noqa: RUF001
        "training memory 640 MiB –",  # noqa: RUF001
        "inference memory 300 MiB 90 MiB (−70 %)",  # noqa: RUF001
        "latency 40 ms [36, 48] 10 ms [9, 12] (−75 %)",  # noqa: RUF001
        "mAP50 0.600 0.592 (−0.008)",  # noqa: RUF001
        "mAP50-95 0.300 0.296 (−0.004)",  # noqa: RUF001
        "front * *",
        "",
    ]


def test_more_variants_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(THREE, capsys) == [
        "training inference",
        "parameters file memory memory latency in ms mAP50 mAP50-95",
        "best.pt 1,769,329 8 MiB 640 MiB 300 MiB 40 [36, 48] 0.600 0.300",
        "* best-int8.onnx 1,769,329 2 MiB – 90 MiB 10 [9, 12] 0.592 0.296",  # noqa: RUF001
        "* best.onnx 1,769,329 8 MiB – 100 MiB 20 [18, 24] 0.600 0.300",  # noqa: RUF001
        "",
        "Recommended: this one.",
        "",
        (
            "* is on the front: no other variant is better in mAP50-95, file, inference memory or latency and "
            "worse in none."
        ),
        "Training memory: predicted peak of torch's allocations in a step with 16 images on cpu.",
        (
            "Image size 640. Latency: the network on one image, CPU, 1 thread, median and quartiles of 40 runs. "
            "Inference memory: peak RSS of a process that does this, libraries included. Scores: val split."
        ),
    ]


def test_exported_files_alone_have_no_training_memory(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a.onnx", "b.onnx", "c.onnx")
    result = compared(
        *(replace(item, name=name, training=None) for item, name in zip(THREE.variants, names, strict=True))
    )
    assert not any("raining" in line for line in printed(result, capsys))


@pytest.mark.parametrize("result", [TWO, THREE])
def test_tables_fit_into_a_hundred_columns(result: CompareResult) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None, highlight=False)
    console.print(CompareReport(result).render(plain=False), crop=False)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert any("0.296" in line for line in lines)


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    odd = [replace(item, name=name) for item, name in zip(TWO.variants, ("a[red].pt", "b\x1b[2J.onnx"), strict=True)]
    lines = printed(compared(*odd), capsys)
    assert lines[0] == "a[red].pt b?[2J.onnx"
    lines = printed(compared(*odd, replace(THREE.variants[2], name="x" * 40 + ".onnx")), capsys)
    assert any(line.startswith("a[red].pt") for line in lines)
    assert any(f"{'x' * 14}...{'x' * 9}.onnx" in line for line in lines)


def test_the_document_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    emit(CompareReport(THREE), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["method"], len(document["variants"])) == ("shrink", "compare", 3)
    assert document["front"] == ["best-int8.onnx", "best.onnx"]
    assert document["recommendation"]["variant"] == "best-int8.onnx"
    assert document["variants"][1]["latency"]["upper"] == pytest.approx(0.012)


def test_markers_have_the_numbers_of_the_variants() -> None:
    chart = _chart(THREE, _LATENCY)
    assert [marker.label for marker in chart.markers] == ["best.pt", "best-int8.onnx", "best.onnx"]
    assert [marker.filled for marker in chart.markers] == [False, True, True]
    assert [marker.x for marker in chart.markers] == pytest.approx([40, 10, 20])
    assert chart.markers[1].x_range == pytest.approx((9, 12))
    assert [marker.y for marker in chart.markers] == [0.3, 0.296, 0.3]
    assert chart.all_labels
    assert [marker.x for marker in _chart(THREE, _MEMORY).markers] == pytest.approx([300, 90, 100])


def test_the_line_joins_the_front_of_its_chart() -> None:
    line = _chart(THREE, _LATENCY).line
    assert line.x == pytest.approx((10, 20))
    assert line.y == (0.296, 0.3)
    small = variant("small.onnx", 1, 110, 30, 0.29)  # on the front by its file alone
    result = compared(*THREE.variants, small)
    assert "small.onnx" in result.front
    assert _chart(result, _MEMORY).line.x == pytest.approx((90, 100))


def test_noise_is_not_magnified() -> None:
    close = compared(variant("a.pt", 8, 300, 40, 0.3001), variant("b.onnx", 2, 90, 10, 0.3004))
    low, high = _chart(close, _MEMORY).y_limits or (0, 0)
    assert high - low == pytest.approx(0.02)
    assert {marker.y for marker in _chart(close, _MEMORY).markers} == {0.3}


def test_scores_of_zero_are_drawn() -> None:
    low, high = _chart(compared(variant("a.pt", 8, 300, 40, 0), variant("b.onnx", 2, 90, 10, 0)), _MEMORY).y_limits or (
        1,
        0,
    )
    assert low == 0 < high


def test_the_file_is_a_png_with_both_charts(tmp_path: Path) -> None:
    save_compare_plot(THREE, tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as image:
        assert (image.format, image.size) == ("PNG", (1600, 500))
    assert (tmp_path / "plot.png").read_bytes() != compare_plot(TWO)
