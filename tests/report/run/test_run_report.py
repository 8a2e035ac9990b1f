from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from plotly import graph_objects

from oomph.errors import UsageError
from oomph.prediction import Prediction
from oomph.report.run import RunReport, default_page, write_page, write_run_page
from oomph.report.run._chart import Chart, Limit, draw, time_unit
from oomph.report.run._run_page import comparison_table
from oomph.report.run._series import MAX_POINTS, Series
from oomph.report.run._summary import summarize
from oomph.units import GIB

from .runs import START, gpu_lines, write_record, write_run_folder


def test_the_document_has_what_the_page_has(tmp_path: Path, prediction: Prediction) -> None:
    document = RunReport.of([write_run_folder(tmp_path / "exp", prediction)]).document()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    (run,) = document["runs"]
    assert (run["state"], run["retries"], len(run["epochs"])) == ("finished", 0, 3)
    assert run["plan"]["settings"]["micro_batch"] == 2
    charts = {chart["name"]: chart for chart in document["charts"]}
    assert set(charts) == {"ram", "step-time", "waiting", "micro-batches", "loss", "map", "lr", "speed"}
    assert charts["map"]["series"][0] == {"label": "mAP50-95", "x": [2.0, 3.0], "y": [0.25, 0.5]}


def test_series_have_at_most_4000_points_and_keep_the_extremes(tmp_path: Path) -> None:
    lines = gpu_lines(2100)
    lines += [{**line, "t": line["t"] + 2100} for line in lines if "sample" in line]
    lines[2001]["sample"]["rss"] = 31 * GIB + 7
    document = RunReport.of([write_record(tmp_path / "a.jsonl", lines)]).document()
    series = {line["label"]: line for chart in document["charts"] for line in chart["series"]}
    assert all(len(line["x"]) == len(line["y"]) <= MAX_POINTS for line in series.values())
    assert max(series["process tree (RSS)"]["y"]) == 31 * GIB + 7


def test_plotly_accepts_all_figures_and_hover_has_the_bytes(tmp_path: Path) -> None:
    report = RunReport.of([write_record(tmp_path / "a.jsonl", gpu_lines(20))])
    for chart in report.charts.all:
        figure = draw(chart, time_unit(20))
        graph_objects.Figure(data=list(figure.data), layout=dict(figure.layout))
    memory = draw(report.charts.gpu[0], time_unit(20))
    allocated = {line["sample"]["torch"][0]["allocated"] for line in gpu_lines(20) if "sample" in line}
    assert set(memory.data[0]["customdata"]) == allocated
    labels = [trace["name"] for trace in memory.data]
    assert labels[-3:] == ["predicted peak of allocated", "budget", "memory of the card"]


def test_a_limit_far_above_is_hidden_at_first_and_in_the_table() -> None:
    chart = Chart("ram", "RAM", "bytes", (Series("rss", [0, 1], [GIB, 2 * GIB]),), (Limit("total", 64 * GIB),))
    figure = draw(chart, time_unit(1))
    assert figure.data[-1]["visible"] == "legendonly"
    assert figure.table is not None
    assert figure.table.rows[-1] == ("total", "", "64 GiB", "")
    assert figure.summary == "Rss at most 2 GiB; total 64 GiB."


def test_a_line_is_interrupted_where_the_run_was_resumed() -> None:
    chart = Chart("a", "A", "s", (Series("a", [0, 10, 500, 510], [1, 2, 3, 4], start=START, breaks=(490.0,)),))
    assert draw(chart, time_unit(510)).data[0]["y"] == [1, 2, None, 3, 4]


@pytest.mark.parametrize(("duration", "name"), [(0, "s"), (179, "s"), (180, "min"), (3 * 3600, "h"), (1e6, "h")])
def test_the_time_axis_has_a_unit_that_fits(duration: float, name: str) -> None:
    assert time_unit(duration).name == name


def test_compared_runs_have_differing_settings_only(tmp_path: Path, prediction: Prediction) -> None:
    folders = [write_run_folder(tmp_path / name, prediction) for name in ("a", "b")]
    config = {"epochs": 3, "imgsz": 128, "data": "data.yaml", "cfg": "n", "hyp": {"lr0": 0.5}}
    (folders[1] / "config.json").write_text(json.dumps({"resolved": config}))
    report = RunReport.of(folders)
    table = comparison_table(report.runs, [summarize(run) for run in report.runs])
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["imgsz"] == ("64", "128")
    assert "data" not in rows
    assert rows["verdict"] == ("no problem", "no problem")
    assert {series.label for series in report.charts.ram[0].series} == {
        "a: process tree (RSS)",
        "b: process tree (RSS)",
    }


def test_the_page_goes_into_the_folder_or_beside_the_record(tmp_path: Path) -> None:
    record = write_record(tmp_path / "my run.jsonl", [])
    assert default_page([tmp_path]) == tmp_path / "report.html"
    assert default_page([record]) == tmp_path / "my run.html"
    assert default_page([record, tmp_path]) == Path("report.html")


def test_only_a_page_of_oomph_is_overwritten(tmp_path: Path) -> None:
    record = write_record(tmp_path / "a.jsonl", [])
    report, page = RunReport.of([record]), tmp_path / "a.html"
    page.write_text("<p>my notes</p>")
    with pytest.raises(UsageError, match="exists and is not a page of oomph"):
        write_page(report, page, replace=False)
    assert page.read_text() == "<p>my notes</p>"
    assert write_page(report, page, replace=True).page == page
    assert write_page(report, page, replace=False).page == page
    before = record.read_bytes()
    for path, text in ((record, "is the Record itself"), (tmp_path, "is a folder"), (tmp_path / "no" / "a", "written")):
        with pytest.raises(UsageError, match=text):
            write_page(report, path, replace=True)
    assert record.read_bytes() == before


def test_a_page_of_a_folder_that_cannot_be_written_is_an_error_of_oomph(tmp_path: Path, prediction: Prediction) -> None:
    folder = write_run_folder(tmp_path / "exp", prediction)
    assert write_run_page(folder).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        write_run_page(folder)


def test_an_empty_record_gives_a_page_that_says_so(tmp_path: Path) -> None:
    html = RunReport.of([write_record(tmp_path / "a.jsonl", [])]).html()
    assert "The Record has no samples and no steps" in html
    assert 'class="plot"' not in html


def test_odd_values_do_not_break_a_report(tmp_path: Path) -> None:
    odd = [
        {"t": START + 1, "step": {"step": "<b>", "loss": "inf", "seconds": -1, "wait": 1e308, "lr": 1e-300}},
        {"t": START + 2, "step": {"step": 2, "loss": "nan", "micro_batches": 10**30, "retries": True, "peak": None}},
        {"t": START - 1e9, "sample": {"rss": 5, "gpus": [{"index": 0}], "torch": "x"}},
        {"t": -9e10, "sample": {"rss": 7}},
        {"t": START + 9e10 - 2e9, "event": "error", "error": ["a"], "text": {"b": 1}},
        {"t": START + 3, "step": {"retries": 10**400, "fallbacks": "no list", "step": None}},
    ]
    path = write_record(tmp_path / "a.jsonl", odd)
    with path.open("a") as file:
        file.write('{"t": 5, "sample": {"rss":')
    report = RunReport.of([path])
    assert "damaged lines" in dict(summarize(report.runs[0]).facts)
    json.dumps(report.document(), allow_nan=False)
    assert report.html()
    assert not any(math.isnan(value) for chart in report.charts.all for line in chart.series for value in line.values)
