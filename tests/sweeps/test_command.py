from __future__ import annotations

from pathlib import Path

import pytest

from oomph.errors import UsageError
from oomph.sweeps import (
    LOG_FILE,
    Cell,
    CellOutcome,
    CommandResult,
    CommandTemplate,
    Grid,
    Limits,
    Status,
    parse_metrics,
)

GRID = Grid((("batch", (16,)), ("name", ("a b; rm",))))


def test_values_stay_single_arguments() -> None:
    template = CommandTemplate("python 'my train.py' --batch={batch} {name} {{x}} {seed}")
    template.check(GRID)
    assert template.argv(GRID.cells()[0]) == ("python", "my train.py", "--batch=16", "a b; rm", "{x}", "0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run {batch} {name} {lr}", r"the command uses \{lr\}, which has no values; add --set lr="),
        ("run {batch}", r"the command doesn't use \{name\}; add \{name\} to it"),
        ("run {batch {name}", "invalid placeholder"),
        ("run {batch!r} {name}", "invalid placeholder"),
        ("run {batch.real} {name}", "invalid placeholder"),
        ("run {} {name}", "invalid placeholder"),
        ("run '{batch}", "can't be split"),
        ("  ", "the command is empty"),
    ],
)
def test_templates_that_do_not_match_the_grid_are_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CommandTemplate(text).check(GRID)


def test_several_seeds_need_a_placeholder() -> None:
    with pytest.raises(UsageError, match=r"doesn't use \{seed\}"):
        CommandTemplate("run").check(Grid((), (0, 1)))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("mAP50: ([0-9.]+)", "mAP50"),
        (r"^\s+all .* (?P<map50>\S+)$", "map50"),
        ("mAP@.5:.95=([0-9.]+)", "mAP@.5"),
        (r"(\d+)%", "d"),
        (r"([0-9]+)", "metric"),
    ],
)
def test_a_metric_is_named_by_its_group_or_first_word(pattern: str, name: str) -> None:
    assert parse_metrics([pattern])[0].name == name


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([], "no metric is given"),
        (["mAP: [0-9"], "is not a regular expression"),
        (["mAP: "], "has 0 groups"),
        (["(a)(b)"], "has 2 groups"),
        (["mAP: (.)", "mAP= (.)"], "two metrics are called 'mAP'"),
    ],
)
def test_invalid_metrics_are_one_sentence(patterns: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_metrics(patterns)


@pytest.mark.parametrize(
    ("output", "status", "metrics", "why"),
    [
        (b"loss: 3\nmAP: 0.1\r\xff mAP: 0.25\nbye", Status.DONE, {"mAP": 0.25, "loss": 3}, ""),
        (b"mAP: 1.2.3 loss: 1", Status.FAILED, {}, "the metric mAP is '1.2.3', which is not a number"),
        (b"mAP: nan loss: 1", Status.FAILED, {}, "the metric mAP is nan, which is not finite"),
        (b"mAP: 1", Status.FAILED, {}, "the metric loss was not found in its output"),
        (b"", Status.FAILED, {}, "the metric mAP was not found in its output"),
    ],
)
def test_the_last_match_in_the_output_counts(
    tmp_path: Path, output: bytes, status: Status, metrics: dict[str, float], why: str
) -> None:
    (tmp_path / LOG_FILE).write_bytes(output)
    finish = CommandResult(parse_metrics([r"mAP: (\S+)", r"loss: (?P<loss>\S+)"]), Limits())
    result = finish(Cell((), 0), tmp_path, CellOutcome(exit_code=0, host_peak=7, seconds=2))
    assert (result.status, result.metrics, result.why) == (status, metrics, why)
    assert (result.host_peak, result.seconds, result.exit_code) == (7, 2, 0)
