"""What `last-group-not-stepped` suggests is right whatever the counter starts with, and lint accepts it."""

from __future__ import annotations

import pytest

from oomph.lint import lint_text

LOOP = """
def train(net, crit, loader, opt, accum):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader{start}):
        (crit(net(x), y) / accum).backward()
        if {test}:
            opt.step()
            opt.zero_grad()
"""


def messages(start: str, test: str) -> dict[str, str]:
    found = lint_text(LOOP.format(start=start, test=test), "train.py").diagnostics
    return {diagnostic.rule: diagnostic.problem.message for diagnostic in found}


@pytest.mark.parametrize(
    ("start", "test", "suggested"),
    [
        ("", "(i + 1) % accum == 0", "(i + 1) % accum == 0 or i + 1 == len(loader)"),
        ("", "i % accum == accum - 1", "i % accum == accum - 1 or i + 1 == len(loader)"),
        ("", "i % accum == 0", "(i + 1) % accum == 0 or i + 1 == len(loader)"),
        ("", "not i % accum", "(i + 1) % accum == 0 or i + 1 == len(loader)"),
        (", 1", "i % accum == 0", "i % accum == 0 or i == len(loader)"),
        (", start=2", "(i - 1) % accum == 0", "(i - 1) % accum == 0 or i - 1 == len(loader)"),
    ],
)
def test_the_suggested_condition_steps_after_the_last_micro_batch(start: str, test: str, suggested: str) -> None:
    assert messages(start, test)["last-group-not-stepped"].endswith(f"as in `if {suggested}`")
    assert messages(start, suggested) == {}


def test_a_counter_that_never_reaches_the_length_is_found() -> None:
    message = messages("", "(i + 1) % accum == 0 or i == len(loader)")["last-group-not-stepped"]
    assert message.endswith("compare i + 1 with len(loader)")
