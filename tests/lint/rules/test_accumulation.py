"""What `last-group-not-stepped` suggests is right whatever the counter starts with, and lint accepts it."""

from __future__ import annotations

import pytest

from oomph.lint import LintOptions, fix_text, lint_text

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


TWO_OPTIMIZERS = """
class Gan:
    def critic_step(self, real):
        loss = self.critic(self.generator(noise()).detach()).mean() - self.critic(real).mean()
        {critic}

    def generator_step(self):
        self.opt_g.zero_grad()
        (-self.critic(self.generator(noise())).mean()).backward()
        self.opt_g.step()

    def fit(self):
        for real in self.loader:
            self.critic_step(real)
            self.generator_step()
"""


@pytest.mark.parametrize(
    ("lines", "fixed"),
    [
        (
            ["loss.backward()", "self.opt_c.step()"],
            ["self.opt_c.zero_grad()", "loss.backward()", "self.opt_c.step()"],
        ),
        # Which backward is the first one of a step, the lines don't show.
        (["loss.backward()", "if self.count % 4 == 0:", "    self.opt_c.step()"], None),
    ],
)
def test_gradients_that_another_method_leaves_are_zeroed_before_their_own(
    lines: list[str], fixed: list[str] | None
) -> None:
    def text(lines: list[str]) -> str:
        return TWO_OPTIMIZERS.format(critic="\n        ".join(lines))

    only = LintOptions(select=("grad-never-zeroed",))
    (diagnostic,) = lint_text(text(lines), "gan.py", only).diagnostics
    assert "before" in diagnostic.problem.message.rpartition("self.opt_c.zero_grad()")[2]
    assert fix_text(text(lines), "gan.py", only)[0] == text(fixed or lines)


def test_two_programs_with_one_optimizer_each_zero_after_the_step() -> None:
    function = (
        "def {0}(net, x):\n    {0}_opt = SGD(net)\n    for _ in x:\n        net(x).backward()\n        {0}_opt.step()\n"
    )
    text = function.format("a") + function.format("b")
    fixed, count = fix_text(text, "two.py", LintOptions(select=("grad-never-zeroed",)))
    assert count == 2
    assert fixed.count("_opt.step()\n        a_opt.zero_grad()\n") == 1
    assert fixed.count("_opt.step()\n        b_opt.zero_grad()\n") == 1
