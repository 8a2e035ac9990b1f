"""Every command and flag is documented and has help, and what the docs show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from oomph.cli import run
from oomph.cli._main import build

REPO = Path(__file__).parent.parent
GROUPS: dict[str, Any] = {name: command for name, command in build().commands.items() if hasattr(command, "commands")}
SUBCOMMANDS = {f"{name} {method}": command for name in GROUPS for method, command in GROUPS[name].commands.items()}
COMMANDS: dict[str, Any] = {**build().commands, **SUBCOMMANDS}
PAGES = sorted([REPO / "README.md", REPO / "CONTRIBUTING.md", *(REPO / "docs").rglob("*.md")])


@pytest.mark.parametrize("name", build().commands)
def test_every_command_has_help_and_a_page_of_its_own(name: str) -> None:
    assert COMMANDS[name].help
    page = (REPO / "docs" / f"{name}.md").read_text()
    assert page.startswith(f"# `oomph {name}`")
    assert f"(docs/{name}.md)" in (REPO / "README.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_has_help_and_stands_on_the_page(name: str) -> None:
    assert COMMANDS[name].help
    page = (REPO / "docs" / f"{name.replace(' ', '/')}.md").read_text()
    assert page.startswith(f"# `oomph {name}`")
    parameters = COMMANDS[name].params
    # sweep is two commands: of detectors, and of any program; predict and plan also write files for other tools, and
    # have two flags for several ranks
    assert len(parameters) <= {"sweep": 20, "predict": 18, "plan": 18}.get(name, 15)
    for parameter in parameters:
        assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"
        for flag in parameter.opts:
            shown = flag if flag.startswith("-") else flag.upper()
            assert f"`{shown}" in page, f"docs/{name}.md does not explain {shown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design/architecture.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    source = REPO / "src/oomph"
    for name in re.findall(r"(?<![\w>/])[\w/]+\.py\b", (REPO / page).read_text()):
        found = [source / name, REPO / name] if "/" in name else source.rglob(name)
        assert any(path.exists() for path in found), f"{page} names {name}"


def shown_commands() -> list[tuple[str, str, str]]:
    """Each `$ oomph …` in a fenced console block with the lines that the page shows under it."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                if command.startswith("oomph "):
                    found.append((page.name, command, output))
    return found


@pytest.mark.medium
@pytest.mark.parametrize(("page", "command", "output"), shown_commands(), ids=lambda value: str(value)[:40])
def test_what_a_page_shows_is_what_the_command_prints(
    page: str, command: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line by line and in order; a "…" line stands for lines left out."""
    del page
    run(shlex.split(command)[1:])
    captured = capsys.readouterr()
    printed = iter(" ".join(line.split()) for line in (captured.out + captured.err).splitlines())
    for line in output.splitlines():
        wanted = " ".join(line.split())
        if wanted not in {"", "…"}:
            assert wanted in printed, f"not printed, or not in this order: {line}"
