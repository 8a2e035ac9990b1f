"""Pages of runs in a real browser: each chart is there, hover shows what the Record contains, nothing else happens."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph.cli import run as run_command
from oomph.monitor import load_record
from oomph.prediction import Prediction
from oomph.report.run import RunReport, write_page
from tests.browser import opened
from tests.recovery.faults import FaultIn
from tests.recovery.nets import plain_batch, plain_net

from .runs import gpu_lines, iter_gpu_lines, watched_process, write_record, write_run_folder

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)> & "quotes" \'too\''


def page_of(*paths: Path, out: Path) -> Path:
    page = write_page(RunReport.of(paths), out, replace=True).page
    assert page is not None
    return page


def wait_for_charts(page: Any, names: set[str]) -> None:
    """Wait until all charts are drawn, and check which ones there are."""
    page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg') && plot._fullLayout)"
    )
    assert set(page.eval_on_selector_all("figure.chart", "figures => figures.map(figure => figure.id)")) == names


def hover_text(page: Any, chart: str, trace: int = 0) -> str:
    """Point at the middle of a chart's trace and return the hover text."""
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([chart, number]) => {
            const plot = document.querySelector(`#${chart} .plot`), trace = plot._fullData[number];
            const {xaxis, yaxis} = plot._fullLayout, index = Math.floor(trace.x.length / 2);
            const box = plot.querySelector(".nsewdrag").getBoundingClientRect();
            return [box.x + xaxis.d2p(trace.x[index]), box.y + yaxis.d2p(trace.y[index])];
        }""",
        [chart, trace],
    )
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    page.wait_for_selector(f"#{chart} .hoverlayer .hovertext")
    return str(page.locator(f"#{chart} .hoverlayer .hovertext").first.text_content())


def hovered_bytes(text: str) -> int:
    match = re.search(r"\(([\d,]+) bytes\)", text)
    assert match, text
    return int(match[1].replace(",", ""))


@pytest.mark.medium
def test_a_finished_run(browser: Any, tmp_path: Path, prediction: Prediction) -> None:
    folder = write_run_folder(tmp_path / "exp", prediction)
    charts = {"ram", "step-time", "waiting", "micro-batches", "peak", "loss", "map", "lr", "speed"}
    with opened(browser, page_of(folder, out=tmp_path / "a.html")) as tab:
        wait_for_charts(tab.page, charts)
        samples = {int(sample["rss"]) for sample in load_record(folder / "record.jsonl").samples}
        assert hovered_bytes(hover_text(tab.page, "ram")) in samples
        assert "0.27 s" in hover_text(tab.page, "step-time"), "the third step took 0.25 + 2 / 100 s"
        assert tab.page.text_content("h1") == "Run exp"
        headings = tab.page.eval_on_selector_all("h1, h2, h3", "all => all.map(heading => Number(heading.tagName[1]))")
        assert headings[0] == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(headings))
        pictures = tab.page.eval_on_selector_all("img", "all => all.map(img => [img.alt, img.naturalWidth])")
        assert [width for _, width in pictures] == [1600, 1600]
        assert all(text for text, _ in pictures)
        assert "a b.jpg" in tab.page.inner_text("#data")
        # The treemap can be zoomed.
        tab.page.locator("#peak").scroll_into_view_if_needed()
        slices = tab.page.locator("#peak .slice").count()
        tab.page.locator("#peak .slice", has_text="not traced").first.click()
        assert slices > 5


@pytest.mark.medium
def test_retries_of_a_guarded_run_are_marked_and_explained(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with oomph.watch(file, interval=0.02) as recorder:
        net = plain_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, recorder=recorder)
        for number in range(6):
            with FaultIn("addmm", times=1 if number == 3 else 0):
                guard.step(plain_batch())
            time.sleep(0.03)
    with opened(browser, page_of(file, out=tmp_path / "a.html")) as tab:
        wait_for_charts(
            tab.page, {"ram", "step-time", "waiting", "micro-batches", "loss", "grad-norm", "lr"} | shm_chart(file)
        )
        text = tab.page.inner_text("#events")
        assert "Memory ran out after step 3, in 1 micro-batch" in text
        assert "Step 4 was completed after 1 retry: 2 micro-batches of" in text
        markers = tab.page.evaluate("document.querySelector('#ram .plot').data.at(-1).customdata")
        assert [marker.split("</b>")[0] for marker in markers] == ["<b>oom", "<b>retry"]
        assert "0.1" in hover_text(tab.page, "lr")


def shm_chart(file: Path) -> set[str]:
    """Charts of this machine's own swap and shared memory, which may be in use."""
    samples = load_record(file).samples
    fields = {"shm": ("shm_used",), "swap": ("swap_used",), "swap-rate": ("swap_in_rate", "swap_out_rate")}
    return {name for name, keys in fields.items() if any(sample.get(key) for sample in samples for key in keys)}


GPU_CHARTS = {"ram", "swap", "swap-rate", "shm", "step-time", "waiting", "micro-batches", "loss", "grad-norm", "lr"}


@pytest.mark.medium
def test_a_gpu_run_on_a_phone_in_the_dark(browser: Any, tmp_path: Path) -> None:
    lines = gpu_lines(200)
    page = page_of(write_record(tmp_path / "run.jsonl", lines), out=tmp_path / "a.html")
    with opened(browser, page, width=360, height=740, color_scheme="dark") as tab:
        wait_for_charts(tab.page, {*GPU_CHARTS, "gpu-0-memory"})
        assert tab.page.evaluate("document.documentElement.scrollWidth") == 360
        allocated = {line["sample"]["torch"][0]["allocated"] for line in lines if "sample" in line}
        assert hovered_bytes(hover_text(tab.page, "gpu-0-memory")) in allocated
        legends = "#gpu-0-memory .legendtext"
        boxes = tab.page.eval_on_selector_all(legends, "all => all.map(text => text.getBoundingClientRect().right)")
        assert max(boxes) < 360
        colors = tab.page.eval_on_selector_all(legends, "all => all.map(text => getComputedStyle(text).fill)")
        brightness = sum(map(int, re.findall(r"\d+", colors[0])[:3])) / 3
        assert brightness > 150


@pytest.mark.medium
def test_hostile_content_is_shown_as_text(browser: Any, tmp_path: Path, prediction: Prediction) -> None:
    folder = write_run_folder(tmp_path / "<b>'run'&\"<img src=x>", prediction)
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    plan = next(line for line in lines if line.get("event") == "plan")["plan"]
    plan["planned_need"]["peak"]["owners"][0]["module"] = HOSTILE.replace(".", "")
    plan["changes"][0]["what"] = HOSTILE
    lines.insert(5, {"t": lines[3]["t"], "event": "error", "error": HOSTILE, "text": HOSTILE})
    lines.insert(
        6, {"t": lines[3]["t"], "step": {"step": HOSTILE, "retries": 1, "loss": "nan", "fallbacks": [HOSTILE]}}
    )
    (folder / "record.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"t": 1, "sam')
    (folder / "data_issues.json").write_text(json.dumps({HOSTILE: [{"problem": HOSTILE, "examples": [HOSTILE]}]}))
    with opened(browser, page_of(folder, out=tmp_path / "a.html")) as tab:
        wait_for_charts(
            tab.page, {"ram", "step-time", "waiting", "micro-batches", "peak", "loss", "map", "lr", "speed"}
        )
        assert tab.page.title().startswith("Run <b>'run'&\"<img src=x>")
        for section in ("plan", "events", "data"):
            assert HOSTILE in tab.page.text_content(f"#{section}")
        assert tab.page.locator("img").count() == 2
        markers = tab.page.evaluate("document.querySelector('#ram .plot').data.at(-1).customdata").pop()
        assert "<script" not in markers


@pytest.mark.large
def test_two_runs_are_compared(browser: Any, tmp_path: Path, prediction: Prediction) -> None:
    folder = write_run_folder(tmp_path / "a", prediction)
    record = write_record(tmp_path / "b.jsonl", gpu_lines(100))
    with opened(browser, page_of(folder, record, out=tmp_path / "two.html")) as tab:
        names = {"ram", "swap", "swap-rate", "shm", "gpu-0-memory", "step-time", "waiting", "micro-batches"}
        wait_for_charts(tab.page, names | {"peak", "loss", "map", "lr", "speed"})
        assert tab.page.text_content("h1") == "Runs a, b"
        columns = tab.page.locator("header thead th").all_text_contents()
        assert columns == ["", "a", "b"]
        colors = tab.page.evaluate("document.querySelector('#step-time .plot').data.map(trace => trace.line.color)")
        assert len(set(colors)) == 2


@pytest.mark.large
def test_four_ranks(browser: Any, tmp_path: Path) -> None:
    for rank in range(4):
        name = "record.jsonl" if rank == 0 else f"record-{rank}.jsonl"
        write_record(tmp_path / "run" / name, gpu_lines(120, device=rank, gpus=4))
    with opened(browser, page_of(tmp_path / "run", out=tmp_path / "a.html")) as tab:
        wait_for_charts(tab.page, GPU_CHARTS | {f"gpu-{rank}-memory" for rank in range(4)})
        names = tab.page.evaluate("document.querySelector('#ram .plot').data.slice(0, 4).map(trace => trace.name)")
        assert names == [f"rank {rank}: process tree (RSS)" for rank in range(4)]
        assert "rank 2" in hover_text(tab.page, "gpu-2-memory")


@pytest.mark.large
def test_four_processes_that_train_together(browser: Any, tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    command = [sys.executable, *launcher, "-m", "oomph", "train", "--epochs", "1"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    page = tmp_path / "runs/train/exp/report.html"
    with opened(browser, page) as tab:
        tab.page.wait_for_selector("#ram .main-svg")
        names = tab.page.evaluate("document.querySelector('#ram .plot').data.map(trace => trace.name)")
        assert {f"rank {rank}: process tree (RSS)" for rank in range(4)} <= set(names)
        assert "Finished" in tab.page.inner_text(".state")


@pytest.mark.medium
def test_a_killed_run(browser: Any, tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    with watched_process(record) as process:
        os.kill(process.pid, signal.SIGKILL)
    with opened(browser, page_of(record, out=tmp_path / "a.html")) as tab:
        tab.page.wait_for_selector("#ram .main-svg")
        assert tab.page.inner_text(".state").startswith("Killed after")
        assert tab.page.locator(".finding").count() >= 1
        sizes = {sample["rss"] for sample in load_record(record).samples}
        assert hovered_bytes(hover_text(tab.page, "ram")) in sizes


@pytest.mark.medium
def test_an_empty_record(browser: Any, tmp_path: Path) -> None:
    with opened(browser, page_of(write_record(tmp_path / "a.jsonl", []), out=tmp_path / "a.html")) as tab:
        assert "no samples and no steps" in tab.page.inner_text(".state")
        assert tab.page.locator(".plot").count() == 0


@pytest.mark.large
def test_a_day_with_500_000_samples_is_drawn_in_three_seconds(browser: Any, tmp_path: Path) -> None:
    record = write_record(tmp_path / "day.jsonl", iter_gpu_lines(500_000, 86_400 / 500_000))
    page = page_of(record, out=tmp_path / "a.html")
    assert page.stat().st_size < 8e6
    times = []
    for _ in range(3):  # the fastest counts: other tests run beside it
        started = time.monotonic()
        with opened(browser, page) as tab:
            wait_for_charts(tab.page, {*GPU_CHARTS, "gpu-0-memory"})
            times.append(time.monotonic() - started)
    assert min(times) < 3
    with opened(browser, page) as tab:
        wait_for_charts(tab.page, {*GPU_CHARTS, "gpu-0-memory"})
        points = tab.page.evaluate(
            "[...document.querySelectorAll('.plot')].flatMap(plot => plot.data.map(trace => trace.x.length))"
        )
        assert 1000 < max(points) <= 4000
        size = hovered_bytes(hover_text(tab.page, "gpu-0-memory"))
        lines = iter_gpu_lines(500_000, 86_400 / 500_000)
        assert any("sample" in line and line["sample"]["torch"][0]["allocated"] == size for line in lines)


@pytest.mark.large
def test_oomph_train_writes_its_page(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["train", "--epochs", "2"]) == 0
    page = Path("runs/train/exp/report.html")
    assert f"report: {page}" in capsys.readouterr().err.replace(f"{tmp_path}/", "")
    with opened(browser, page) as tab:
        machine = shm_chart(page.with_name("record.jsonl"))
        charts = {"ram", "step-time", "waiting", "micro-batches", "peak", "loss", "map", "lr", "speed"} | machine
        wait_for_charts(tab.page, charts)
        assert "Finished" in tab.page.inner_text(".state")
        assert tab.page.locator("img").count() == 2
        plan = next(event for event in load_record(page.with_name("record.jsonl")).events if event["event"] == "plan")
        total = round(plan["plan"]["planned_need"]["allocated"]["value"])
        data = tab.page.evaluate("document.querySelector('#peak .plot').data[0]")
        inner = set(data["parents"])
        nodes = zip(data["ids"], data["values"], strict=True)
        assert sum(size for key, size in nodes if key not in inner) == total
