"""HTML of objects in notebooks."""

from __future__ import annotations

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph import Prediction, Record, Settings, StepReport
from oomph.machine import gpu_specs
from oomph.planner import Plan
from oomph.prediction import Owner
from oomph.recovery import Fallback
from oomph.report import GpuList, to_html

REPO = Path(__file__).parents[3]
HOSTILE = (
    "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">[link=javascript:1]x[/link]:fire:"
)
MAX_BYTES = 50_000


def text_of(value: Any) -> str:
    """The text that a browser shows."""
    return html.unescape(re.sub(r"<[^>]*>", "", value._repr_html_()))


@pytest.fixture(scope="module")
def hostile(prediction: Prediction) -> Prediction:
    """A prediction whose module and class have hostile names."""
    owner = Owner(HOSTILE, "parameter", 2**20, HOSTILE)
    return replace(prediction, target=HOSTILE, peak=replace(prediction.peak, owners=(owner,), module=HOSTILE))


def step_report(**changes: Any) -> StepReport:
    report = StepReport(
        micro_batches=2,
        retries=0,
        fallbacks=(),
        loss=torch.tensor(0.25),
        peak_bytes=2**30,
        seconds=0.5,
        skipped=False,
        updated=True,
        grad_norm=torch.tensor(float("nan")),
        learning_rates=(0.1, torch.tensor(0.01)),
        metrics={"correct": torch.tensor(7), HOSTILE: torch.ones(3, 2)},
    )
    return replace(report, **changes)


def plan_of(prediction: Prediction) -> Plan:
    settings = Settings(batch=2)
    return Plan(settings, settings, 2**33, prediction, prediction, changes=(), notes=(HOSTILE,), steps=(HOSTILE,))


def test_a_prediction_shows_its_numbers_and_its_repr_is_unchanged(prediction: Prediction) -> None:
    text = text_of(prediction)
    assert "A training step on cpu" in text
    assert "RSS of the whole process" in text
    assert "Memory at the peak:" in text
    assert repr(prediction).startswith("Prediction(target='cpu', allocated=Estimate(")


def test_a_plan_shows_what_the_command_prints(prediction: Prediction) -> None:
    text = text_of(plan_of(prediction))
    assert "The job fits on cpu with batch 2" in text
    assert "Nothing has to change." in text


def test_a_step_shows_its_loss_retries_and_metrics() -> None:
    fallback = Fallback("micro_batch", "micro-batches of 16", "more time")
    text = text_of(step_report(retries=2, fallbacks=(fallback,), updated=False))
    assert "The step was completed after 2 retries because memory ran out." in text
    assert "micro-batches of 16 (more time)" in text
    for line in ("loss 0.250", "gradient norm nan", "learning rate 0.100, 0.010", "correct 7.000", "peak memory 1 GiB"):
        assert line in " ".join(text.split())
    assert "tensor of 3 × 2" in text
    assert "not updated: gradients are accumulated" in text


@pytest.mark.parametrize(("skipped", "verdict"), [(None, "The step was completed."), (True, "scaler skipped")])
def test_a_step_of_a_gradient_scaler(*, skipped: bool | None, verdict: str) -> None:
    assert verdict in text_of(step_report(skipped=skipped, grad_norm=None, learning_rates=(), peak_bytes=None))


def test_a_real_step_is_shown() -> None:
    model = nn.Linear(4, 1)
    guard = oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=nn.functional.mse_loss)
    assert "The step was completed." in text_of(guard.step((torch.ones(8, 4), torch.ones(8, 1))))


def test_an_explanation_shows_what_to_do() -> None:
    text = text_of(oomph.explain("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"))
    assert text.startswith("The GPU ran out of memory.")
    assert "What to do" in text


def test_a_record_shows_its_diagnosis(tmp_path: Path) -> None:
    record = Record.load(REPO / "examples/records/killed.jsonl")
    assert "The process was killed, most likely because RAM ran out." in text_of(record)
    with oomph.watch(tmp_path / "empty.jsonl"):
        pass
    assert "The Record shows no problem" in text_of(Record.load(tmp_path / "empty.jsonl"))


def test_names_are_text(hostile: Prediction) -> None:
    for value in (hostile, plan_of(hostile), step_report()):
        markup = value._repr_html_()
        assert "<script" not in markup
        assert "<img" not in markup
        assert "<a " not in markup
        assert "[link=javascript:1]x[/link]:fire:" in text_of(value).replace("\n", "")
        assert set(re.findall(r"</?(\w+)", markup)) <= {"pre", "span"}


def test_every_size_is_bounded(hostile: Prediction) -> None:
    record = Record.load(REPO / "examples/records/killed.jsonl")
    many = replace(plan_of(hostile), notes=("note",) * 5000)
    for value in (hostile, many, step_report(), record, GpuList(tuple(gpu_specs()))):
        assert len(value._repr_html_().encode()) < MAX_BYTES
    assert re.search(r"… and \d+ more lines$", text_of(many))


def test_a_subclass_is_shown_as_its_parent(prediction: Prediction) -> None:
    class Special(Prediction):
        pass

    special = Special(**{name: getattr(prediction, name) for name in Prediction.__dataclass_fields__})
    assert text_of(special) == text_of(prediction)


def test_other_objects_have_no_html() -> None:
    with pytest.raises(TypeError, match="a SimpleNamespace has no HTML form"):
        to_html(SimpleNamespace())


@pytest.mark.medium
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_hostile_names_and_runs_nothing(hostile: Prediction, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    page_file = tmp_path / "page.html"
    page_file.write_text(f"<meta charset=utf-8><title>quiet</title>{hostile._repr_html_()}", encoding="utf-8")
    with playwright.sync_playwright() as session:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = session.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri())
        assert page.title() == "quiet"
        assert HOSTILE in page.inner_text("pre").replace("\n", "")
        colors = page.eval_on_selector_all("span", "spans => spans.map(span => getComputedStyle(span).color)")
        assert len(set(colors)) > 1  # the browser knows the colors
        assert requests == [page_file.as_uri()]
        browser.close()
