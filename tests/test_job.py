from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomph.errors import MissingFile, UsageError
from oomph.job import Job, load_job

PARTS: dict[str, Any] = {"model": lambda: None, "batch": lambda n, s: None, "optimizer": lambda m: None}


def test_a_job_needs_exactly_one_of_loss_and_step() -> None:
    assert Job(**PARTS, loss=lambda o, t: o).loss
    assert Job(**PARTS, step=lambda m, b: b).step
    wrongs: list[dict[str, Any]] = [{}, {"loss": lambda o, t: o, "step": lambda m, b: b}]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="exactly one"):
            Job(**PARTS, **wrong)


def test_a_job_is_made_of_functions() -> None:
    with pytest.raises(UsageError, match="the Job's optimizer is None"):
        Job(**{**PARTS, "optimizer": None}, loss=lambda o, t: o)
    with pytest.raises(UsageError, match="share between 0 and 1"):
        Job(**PARTS, loss=lambda o, t: o, selected=0)


def test_inputs_may_be_one_several_or_named() -> None:
    def model(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return (*args, *kwargs.values())

    echo: Any = lambda outputs, targets: (outputs, targets)  # noqa: E731  what the loss was given
    work: Any = Job(**PARTS, loss=echo)
    assert work.run(model, (1, 2)) == ((1,), 2)
    assert work.run(model, ([1, 3], 2)) == ((1, 3), 2)
    assert work.run(model, ({"a": 5}, 2)) == ((5,), 2)


def test_references_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("def other(): return 3\ndef broken(): raise KeyError('x')\n")
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    cases = {
        "job": "is no Job",
        f"{file}": "is no Job",
        f"{file}:missing": "has no function 'missing'",
        f"{file}:other": "returned a int",
        f"{file}:broken": "raised KeyError",
        f"{tmp_path / 'bad.py'}:job": "raised ModuleNotFoundError",
    }
    for reference, words in cases.items():
        with pytest.raises(UsageError, match=words):
            load_job(reference)
    with pytest.raises(MissingFile, match="no file"):
        load_job("nowhere.py:job")


def test_the_example_is_a_job() -> None:
    example = Path(__file__).parents[1] / "examples/jobs/small_net.py"
    assert isinstance(load_job(f"{example}:job"), Job)
