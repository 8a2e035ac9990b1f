"""Lists of names in the rules about commands."""

from __future__ import annotations

import csv
import importlib.resources

import pytest

from oomph.lint import LintOptions, lint_text
from oomph.lint.rules.commands._nvidia_smi_names import SAME_NAMES, known_names
from oomph.lint.rules.commands._yolo_options import ARGUMENTS, SAME_ARGUMENT, SAME_OPTION, SCRIPT_OPTIONS

ONLY_MACHINES = LintOptions(select=("unknown-cloud-machine",))


def catalog_names() -> list[str]:
    text = importlib.resources.files("oomph.machine.catalog").joinpath("cloud_machines.csv").read_text(encoding="utf-8")
    return [row["name"] for row in csv.DictReader(text.splitlines())]


def test_machines_of_the_catalog_exist() -> None:
    names = catalog_names()
    assert len(names) > 150
    text = "\n".join(f"Rent {name} or ml.{name} today." for name in names)
    assert [diagnostic.problem.message for diagnostic in lint_text(text, "a.md", ONLY_MACHINES).diagnostics] == []


@pytest.mark.parametrize(
    "name", ["p3.4xlarge", "ml.p3.xlarge", "g5.32xlarge", "a2-ultragpu-16g", "Standard_ND95asr_v4"]
)
@pytest.mark.parametrize(
    "frame", ["{}", "`{}`", "'{}'", "--type={}", "${{T:-{}}}", "({})", "{}.", "| {} |", "a, {}, b"]
)
def test_missing_machine_is_found_in_any_text(frame: str, name: str) -> None:
    (diagnostic,) = lint_text(frame.format(name), "a.md", ONLY_MACHINES).diagnostics
    span = diagnostic.problem.span
    assert frame.format(name)[span.column : span.end_column] in name


@pytest.mark.parametrize("frame", ["x{}", "{}x", "a.{}", "a-{}", "{}-b"])
def test_part_of_another_name_is_no_machine(frame: str) -> None:
    assert not lint_text(frame.format("p3.4xlarge"), "a.md", ONLY_MACHINES).diagnostics


def test_names_for_fields_lead_to_fields() -> None:
    for switch, names in SAME_NAMES.items():
        known = known_names()[switch or "option"]
        assert set(names.values()) <= known
        assert not names.keys() & known


def test_names_for_options_lead_to_options() -> None:
    assert set(SAME_ARGUMENT.values()) <= ARGUMENTS
    assert not SAME_ARGUMENT.keys() & ARGUMENTS
    options = frozenset().union(*SCRIPT_OPTIONS.values())
    assert set(SAME_OPTION.values()) <= options
    assert not SAME_OPTION.keys() & SCRIPT_OPTIONS["train.py"]
