from __future__ import annotations

import pytest

from oomph.lint.sources import CommandLine, DocumentKind, parse_document


def commands(text: str, kind: DocumentKind = DocumentKind.SHELL) -> tuple[CommandLine, ...]:
    return parse_document("name", text, kind).commands


def test_joined_lines_keep_the_place_of_every_word() -> None:
    text = "python train.py \\\n    --img 640 \\\n    --batch 8\n"
    (command,) = commands(text)
    assert command.text == "python train.py --img 640 --batch 8"
    (words,) = command.commands
    places = {word.text: command.span_of(word) for word in words}
    assert (places["--batch"].line, places["--batch"].column) == (3, 4)
    assert (places["640"].line, places["640"].column, places["640"].end_column) == (2, 10, 13)


def test_windows_shells_continue_lines_too() -> None:
    assert commands("yolo train `\n  data=a.yaml")[0].text == "yolo train data=a.yaml"
    assert commands("yolo train ^\n  data=a.yaml")[0].text == "yolo train data=a.yaml"


@pytest.mark.parametrize("prompt", ["$ ", "> ", "PS C:\\x> ", "(env) $ ", "me@host:~/x$ ", "    "])
def test_prompts_are_no_part_of_the_command(prompt: str) -> None:
    (command,) = commands(f"{prompt}nvidia-smi -L")
    assert command.text == "nvidia-smi -L"
    assert command.span.column == len(prompt)


def test_comments_are_no_commands() -> None:
    assert [command.text for command in commands("# nvidia-smi --foo\nls # x")] == ["ls # x"]


def test_commands_in_quotes_and_substitutions() -> None:
    (command,) = commands("watch -n 1 'nvidia-smi -L' && x=$(yolo train a=1)")
    texts = [[word.text for word in words] for words in command.commands]
    assert ["nvidia-smi", "-L"] in texts
    assert ["yolo", "train", "a=1"] in texts
    for words in command.commands:
        for word in words:
            if word.text == "-L":
                assert command.text[word.start : word.end] == "-L"


PYTHON = """
import os, subprocess
FIELDS = ["name", "memory.used"]
os.system("nvidia-smi -L")
subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(FIELDS)])
subprocess.run(f"nvidia-smi --query-gpu={','.join(FIELDS)} -i {gpu}", shell=True)
later = "yolo train data=a.yaml"
call(["nvidia-smi", "a b"])
print("no command")
"""


def test_strings_in_python() -> None:
    texts = {command.text: command for command in commands(PYTHON, DocumentKind.PYTHON)}
    assert texts.keys() == {
        "nvidia-smi -L",
        "nvidia-smi --query-gpu=name,memory.used",
        "nvidia-smi --query-gpu=name,memory.used -i {}",
        "yolo train data=a.yaml",
        "nvidia-smi 'a b'",
    }
    command = texts["yolo train data=a.yaml"]
    span = command.span_of(command.commands[0][-1])
    assert PYTHON.split("\n")[span.line - 1][span.column : span.end_column] == "data=a.yaml"


def test_notebook_lines() -> None:
    text = '{"cells": [{"cell_type": "code", "source": ["x = !ls -l\\n", "%env A=1\\n", "!a \\\\\\n", "  b"]}]}'
    found = commands(text, DocumentKind.NOTEBOOK)
    assert [(command.text, command.span.cell, command.is_escaped) for command in found] == [
        ("ls -l", 0, True),
        ("env A=1", 0, True),
        ("a b", 0, True),
    ]


def test_exported_notebook_has_commands() -> None:
    assert [c.text for c in commands("!nvidia-smi -L\nimport torch\n", DocumentKind.PYTHON)] == ["nvidia-smi -L"]
    assert commands('x = """\n!ls -L\n"""\n', DocumentKind.PYTHON) == ()
