from __future__ import annotations

import textwrap

import pytest

from oomph.failures import FailureKind, read_log
from oomph.units import GIB
from tests.failures.texts import MEMORY

TEXT = {name: text for _, name, text in MEMORY}
OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity)"
SHM = "RuntimeError: unable to write to file </torch_29_1234>"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 88, in step\n    loss.backward()\n'


def kinds(text: str) -> list[FailureKind]:
    return [finding.kind for finding in read_log(text)]


@pytest.mark.parametrize(
    "line",
    [
        "812/1980Killed",
        "Epoch 3:  41%|████      | 812/1980 [04:10<06:01,  3.23it/s]Killed",
        "Epoch 3:  41%|████      | 812/1980 [04:10<06:01,  3.23it/s, loss=0.3] Killed",
        "loss 0.31 lr 0.001 3.23it/sKilled",
        "(base) me@box:~/train$ Killed",
        "41%|████Killed",
        "**Killed**",
        "`Killed`",
        "> Killed",
        "> > Killed",
        "- Killed",
        "* Killed",
        "| Killed |",
        "```Killed```",
        "<pre>Killed</pre>",
        "Killed<br>",
        "&gt; Killed",
        "217: Killed",
        "  217\tKilled",
        "217 | Killed",
        "2026-11-15 10:00:00 Killed",
        "[2026-11-15 10:00:00,123] Killed",
        "2026-11-15T10:00:00.123Z Killed",
        "10:00:00 Killed",
        "Nov 15 10:00:00 Killed",
        '{"log":"Killed\\n","stream":"stderr","time":"2026-11-15T10:00:00Z"}',
        "\x1b[31mKilled\x1b[0m",
    ],
)
def test_killed_is_seen_behind_progress_and_markdown(line: str) -> None:
    assert kinds(f"starting\n{line}\n") == [FailureKind.OOM_KILL]


@pytest.mark.parametrize(
    "line",
    [
        "Killed processes: none",
        "12 Running, 3 Killed",
        "the best film is Kill Bill, then Killed",
        "| state | Killed processes |",
        "status: Killed by nobody",
        "2026-11-15 10:00:00 Killed processes: none",
    ],
)
def test_killed_in_a_sentence_is_no_failure(line: str) -> None:
    assert kinds(f"starting\n{line}\nready\n") == []


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{OOM}\n```",
        f"> {OOM}",
        f"`{OOM}`",
        f"**{OOM}**",
        OOM.replace("CUDA out of memory", "**CUDA out of memory**"),
        OOM.replace("CUDA out", "CUDA **out**"),
        f"| error | {OOM} |",
        f"<pre>{OOM}</pre><br>",
        f"* {OOM}",
        f"12: {OOM}",
        f"1. {OOM}",
        OOM.replace("CUDA out of", "CUDA \x1b[31mout\x1b[0m of"),
    ],
)
def test_markdown_and_colors_do_not_hide_a_message(text: str) -> None:
    (finding,) = read_log(f"It fails:\n\n{text}\n\nWhy?\n")
    assert finding.kind is FailureKind.CUDA_OOM
    assert finding.numbers["requested"] == 2 * GIB


def test_html_entities_are_resolved() -> None:
    assert kinds(SHM.replace("<", "&lt;").replace(">", "&gt;")) == [FailureKind.SHM_FULL]
    allocator = (
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can&#39;t allocate memory: you tried"
    )
    assert kinds(allocator) == [FailureKind.CPU_OOM]


def wrap(text: str, width: int, start: str = "") -> str:
    """Break a text inside words, as terminals do."""
    return "\n".join(start * (at > 0) + text[at : at + width] for at in range(0, len(text), width))


@pytest.mark.parametrize("width", [30, 40, 41, 50, 60, 72, 79, 80])
def test_wrapped_message_is_found_beside_a_lesser_failure(width: int) -> None:
    message = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
    for wrapped in (
        wrap(message, width),
        wrap(message, width, "> "),
        "\n".join(textwrap.wrap(message, width)),
        "\n".join(textwrap.wrap(message, width, subsequent_indent="    ")),
        "\n".join(textwrap.wrap(message, width, initial_indent="> ", subsequent_indent="> ")),
    ):
        assert kinds(f"FileNotFoundError: no such file 'a'\nWe continued.\n\n{wrapped}\n")[0] is FailureKind.CPU_OOM


def test_numbers_of_a_wrapped_message_are_read() -> None:
    text = TEXT["torch 2.1, with its spelling"]
    for wrapped in (
        wrap(text, 80),
        "\n".join(textwrap.wrap(text, 70)),
        "\n".join(textwrap.wrap(text, 70)).replace("\n", "\r\n"),
    ):
        (finding,) = read_log(wrapped)
        assert finding.kind is FailureKind.CUDA_OOM
        assert finding.numbers["free"] == pytest.approx(1.07 * GIB, rel=1e-3)


def test_lines_that_belong_to_different_messages_are_not_joined() -> None:
    assert kinds("the worker of the loader exited with code 0\nunexpectedly early, but all is well\n") == []
    assert kinds("We were out of the office.\n\nOf memory we have enough.\n") == []
    assert kinds("socket to the tracker is open again\n2026-11-15 10:00:00 nothing timed out in the last hour\n") == []


@pytest.mark.parametrize(
    "source",
    [
        '    raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")',
        '    self.fail("CUDA out of memory. Tried to allocate 1 GiB")',
        '    warnings.warn("Unable to find a valid cuDNN algorithm")',
    ],
)
@pytest.mark.parametrize("rank", ["", "[rank3]: ", "2026-11-15 10:00:00 "])
def test_source_lines_of_a_traceback_are_no_failures(source: str, rank: str) -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', source, "KeyError: 'x'"]
    assert kinds("\n".join(rank + line for line in lines)) == [FailureKind.PYTHON_ERROR]


@pytest.mark.parametrize(
    "source",
    [
        'std::fputs("std::bad_alloc: no memory is left\\n", stderr);',
        'throw std::runtime_error("CUDA out of memory");',
        "// The driver says CUDA out of memory here.",
        '#[error("CUDA out of memory: requested {requested} bytes")]',
    ],
)
def test_source_in_other_languages_is_no_failure(source: str) -> None:
    assert kinds(source) == []


def test_killed_in_a_sentence_is_a_kill() -> None:
    assert kinds('In epoch 9 the process is gone, and the terminal says only "Killed".') == [FailureKind.OOM_KILL]


@pytest.mark.parametrize(
    "advice",
    [
        "Tip: if you get CUDA out of memory, reduce the batch size.",
        "> Note: to avoid `CUDA out of memory` errors,\n> use a smaller batch.",
        "If this prints\nOut Of Memory, ask for more.",
    ],
)
def test_advice_is_no_failure(advice: str) -> None:
    assert kinds(advice) == []


def test_skipped_out_of_memory_outranks_the_error_after_it() -> None:
    skipped = "WARNING: CUDA out of memory, skipping batch 17\n"
    end = f"{TRACEBACK}KeyError: 'loss'\n"
    assert kinds(f"epoch 1 loss 0.4\n{skipped}epoch 1 loss 0.3\n{end}")[0] is FailureKind.CUDA_OOM
    progress = "".join(f"epoch {number} loss 0.{number}\n" for number in range(40))
    assert kinds(f"{skipped}{progress}{end}")[0] is FailureKind.PYTHON_ERROR
