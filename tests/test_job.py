from __future__ import annotations

import sys
from collections import UserDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from oomph.errors import MissingFile, UsageError
from oomph.job import Job, load_job, model_arguments, resize_batch

FUNCTIONS: dict[str, Any] = {"model": lambda: None, "batch": lambda n, s: None, "optimizer": lambda m: None}


def test_job_needs_exactly_one_of_loss_and_step() -> None:
    assert Job(**FUNCTIONS, loss=lambda o, t: o).loss
    assert Job(**FUNCTIONS, step=lambda m, b: b).step
    with pytest.raises(UsageError, match="neither a loss nor a step; set exactly one"):
        Job(**FUNCTIONS)
    with pytest.raises(UsageError, match="both a loss and a step; set exactly one"):
        Job(**FUNCTIONS, loss=lambda o, t: o, step=lambda m, b: b)


def test_invalid_attributes_are_rejected() -> None:
    with pytest.raises(UsageError, match="the Job's optimizer is None"):
        Job(**{**FUNCTIONS, "optimizer": None}, loss=lambda o, t: o)
    with pytest.raises(UsageError, match="mask_fraction is 0; set it to a number above 0 and at most 1"):
        Job(**FUNCTIONS, loss=lambda o, t: o, mask_fraction=0)


def test_messages_do_not_repeat_long_values() -> None:
    with pytest.raises(UsageError) as caught:
        Job(**{**FUNCTIONS, "model": {"layers": ["conv"] * 10_000}}, loss=lambda o, t: o)
    assert len(str(caught.value)) < 150


def test_inputs_may_be_a_value_a_list_or_a_dict() -> None:
    def model(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return (*args, *kwargs.values())

    echo: Any = lambda outputs, targets: (outputs, targets)  # noqa: E731
    job: Any = Job(**FUNCTIONS, loss=echo)
    assert job.run(model, (1, 2)) == ((1,), 2)
    assert job.run(model, ([1, 3], 2)) == ((1, 3), 2)
    assert job.run(model, ({"a": 5}, 2)) == ((5,), 2)


def test_invalid_references_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("def other(): return 3\ndef broken(): raise KeyError('x')\n")
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    cases = {
        "job": "does not name a Job",
        f"{file}": "does not name a Job",
        f"{file}:missing": "has no function 'missing'",
        f"{file}:other": "returned a value of type int",
        f"{file}:broken": "raised KeyError",
        f"{tmp_path / 'bad.py'}:job": "raised ModuleNotFoundError",
    }
    for reference, message in cases.items():
        with pytest.raises(UsageError, match=message):
            load_job(reference)
    with pytest.raises(MissingFile, match="does not exist"):
        load_job("nowhere.py:job")


@pytest.mark.parametrize("code", ["import sys; sys.exit(3)", "def job():\n    import sys\n    sys.exit(3)"])
def test_job_file_that_exits_is_a_usage_error(tmp_path: Path, code: str) -> None:
    file = tmp_path / "job.py"
    file.write_text(code)
    with pytest.raises(UsageError, match=r"job\.py(:job)? called sys\.exit\(3\); remove the call") as caught:
        load_job(f"{file}:job")
    assert caught.value.exit_code == 2


def test_usage_errors_of_the_job_file_pass_through(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("import oomph\njob = oomph.Job(model=None, batch=None)")
    with pytest.raises(UsageError, match=r"^the Job's model is None"):
        load_job(f"{file}:job")


def test_the_example_is_a_job() -> None:
    example = Path(__file__).parents[1] / "examples/jobs/small_net.py"
    assert isinstance(load_job(f"{example}:job"), Job)


def test_entries_of_any_mapping_are_arguments_by_name() -> None:
    assert model_arguments({"ids": 1}) == ((), {"ids": 1})
    assert model_arguments(UserDict(ids=1)) == ((), {"ids": 1})  # a tokenizer's result is no dict
    assert model_arguments([1, 2]) == ([1, 2], {})
    assert model_arguments(1) == ((1,), {})


def test_job_file_imports_its_neighbors_while_it_loads_and_builds(tmp_path: Path) -> None:
    (tmp_path / "neighbor_of_the_job.py").write_text("MODEL = 3")
    (tmp_path / "late_neighbor_of_the_job.py").write_text("MODEL = 4")
    (tmp_path / "job.py").write_text(
        "import neighbor_of_the_job, oomph\n"
        "def late():\n"
        "    import late_neighbor_of_the_job as late\n"
        "    return neighbor_of_the_job.MODEL + late.MODEL\n"
        "def job(): return oomph.Job(model=late, batch=print, loss=print, optimizer=print)\n"
    )
    before = list(sys.path)
    job = load_job(f"{tmp_path / 'job.py'}:job")
    assert sys.path == before
    assert job.model() == 7  # type: ignore[comparison-overlap]
    assert sys.path == before


class Fields(NamedTuple):
    ids: torch.Tensor
    mask: torch.Tensor


def test_example_batch_is_repeated_and_cut() -> None:
    image, weight = torch.arange(6.0).view(3, 2), torch.ones(4)
    batch = {"x": [image, weight], "names": ["a", "b", "c"], "fields": Fields(image, image), "scale": 2.0}
    resized = resize_batch(batch, 3, 4)
    assert resized["x"][0].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert resized["x"][1] is weight  # as long as the new batch, but not along the old one
    assert resized["names"] == ["a", "b", "c", "a"]
    assert resized["fields"].mask.shape == (4, 2)
    assert resized["scale"] == 2.0
    assert resize_batch(batch, 3, 2)["x"][0].tolist() == [[0, 1], [2, 3]]
    assert batch["names"] == ["a", "b", "c"]
    images = [torch.zeros(3, 8, 8), torch.zeros(3, 4, 4)]  # two samples of different sizes
    assert [tuple(item.shape) for item in resize_batch(images, 2, 3)] == [(3, 8, 8), (3, 4, 4), (3, 8, 8)]


def test_live_objects_need_a_number_of_samples() -> None:
    model: Any = object()
    optimizer: Any = object()
    job = Job.of(model, (torch.zeros(5, 2), torch.zeros(5)), loss=lambda o, t: o, optimizer=optimizer)
    assert job.model() is model
    assert job.batch(7, 0)[0].shape == (7, 2)
    assert job.optimizer is not None
    assert job.optimizer(model) is optimizer
    with pytest.raises(UsageError, match="no tensor with a first dimension; set samples"):
        Job.of(model, {"scale": 2.0}, loss=lambda o, t: o, optimizer=optimizer)
