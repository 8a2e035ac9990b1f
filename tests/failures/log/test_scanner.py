from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.failures import FailureKind, LogReading, LogScanner, read_log
from oomph.failures.log._error_trail import ERROR_WORDS
from oomph.failures.log._word_index import WordIndex, to_shapes
from oomph.failures.rules import RULES, Rule
from oomph.units import GIB, KIB
from tests.failures.texts import MEMORY, NOT_MEMORY, NUMERICS

CASES = (*MEMORY, *NUMERICS, *NOT_MEMORY)
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity)"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 88, in step\n    loss.backward()\n'
PROGRESS = "epoch 3 step {} loss 0.{} memory 10.2 GiB error 0.1 failed 0 nan 0 inf 0 exit code 0 3.1it/s\n"
SMALL_BLOCK = 32 * KIB


def scan(data: bytes, sizes: Iterator[int] | None = None, block_bytes: int | None = None) -> LogReading:
    """Feed a log in chunks of the given sizes."""
    scanner = LogScanner() if block_bytes is None else LogScanner(block_bytes)
    start = 0
    while start < len(data):
        size = len(data) if sizes is None else next(sizes)
        scanner.feed(data[start : start + size])
        start += size
    return scanner.finish()


def progress(count: int) -> str:
    return "".join(PROGRESS.format(number, number) for number in range(count))


@given(seed=st.integers(0, 2**32), before=st.integers(0, 900), after=st.integers(0, 900))
@settings(max_examples=10, deadline=None)
def test_result_does_not_depend_on_the_chunks(seed: int, before: int, after: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a test needs the same numbers every time
    texts = [text for _, _, text in chance.sample(CASES, 3)]
    data = f"{progress(before)}{texts[0]}\n{texts[1]}\r\n{progress(after)}{texts[2]}\n".encode()
    whole = scan(data, block_bytes=SMALL_BLOCK)
    sizes = iter(lambda: chance.choice([1, 7, 100, 5000, 40_000]), None)
    assert scan(data, sizes, SMALL_BLOCK) == whole


@pytest.mark.medium
@pytest.mark.parametrize("shift", range(-9000, 1200, 173))
def test_message_at_the_border_of_blocks_is_found(shift: int) -> None:
    start = SMALL_BLOCK + shift
    lines = "x y\n" * (start // 4) + "z" * (start % 4)
    data = (f"{lines}{TRACEBACK}{OOM}\n" + "done\n" * 9000).encode()
    (finding,) = scan(data, block_bytes=SMALL_BLOCK).findings
    assert (finding.kind, finding.numbers["requested"]) == (FailureKind.CUDA_OOM, 2 * GIB)
    assert finding.evidence == OOM


@pytest.mark.medium
@pytest.mark.parametrize(
    "start", [0, 60, 55_000, 57_300, 64_500, 65_480, 65_536, 100_000, 1_048_000, 1_048_576, 1_500_000]
)
def test_message_in_a_long_line_is_found(start: int) -> None:
    data = ("ab " * start)[:start] + f" {OOM} " + "cd " * 500_000
    (finding,) = scan(data.encode()).findings
    assert (finding.kind, finding.numbers["requested"]) == (FailureKind.CUDA_OOM, 2 * GIB)
    assert finding.numbers["capacity"] == pytest.approx(7.79 * GIB, rel=1e-3)


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, _, text in MEMORY])
def test_every_text_is_found_in_the_middle_of_a_long_log(kind: FailureKind, text: str) -> None:
    filler = progress(500)
    names = "".join(f"read image {random.Random(number).randbytes(9).hex()}.jpg\n" for number in range(2000))  # noqa: S311  a test needs the same numbers every time
    for before in (filler, names):
        findings = scan(f"{before}{text}\n{names}".encode(), block_bytes=SMALL_BLOCK).findings
        assert findings[0].kind is kind


def test_rare_line_among_similar_ones_is_found() -> None:
    similar = [f"worker {number} ended with exit code 0" for number in range(30_000)]
    similar[17_000] = "worker 17000 ended with exit code 137"
    assert [finding.kind for finding in scan("\n".join(similar).encode()).findings] == [FailureKind.OOM_KILL]


def test_survived_failure_of_an_early_block_is_known_at_the_end() -> None:
    end = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)"
    data = f"{OOM}\nskipped\n{progress(2000)}{TRACEBACK}{end}\n".encode()
    ended, survived = scan(data, block_bytes=SMALL_BLOCK).findings
    assert (ended.kind, survived.kind) == (FailureKind.SHAPE, FailureKind.CUDA_OOM)
    assert survived.details[0] == "The run continued for long after this."


def test_error_at_the_end_of_a_long_log_ends_the_run() -> None:
    data = f"{TRACEBACK}ValueError: early\n{progress(1500)}{TRACEBACK}KeyError: 'names'\n".encode()
    (finding,) = scan(data, block_bytes=SMALL_BLOCK).findings
    assert (finding.kind, finding.evidence) == (FailureKind.PYTHON_ERROR, "KeyError: 'names'")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("RuntimeError: the frobnicator is open", "RuntimeError: the frobnicator is open"),
        ("2026-11-15 ERROR the frobnicator is open", "2026-11-15 ERROR the frobnicator is open"),
        ("train.py: error: unrecognized arguments: --x", "train.py: error: unrecognized arguments: --x"),
        ("job ended with exit code 3", "job ended with exit code 3"),
        ("fatal: not a git repository", "fatal: not a git repository"),
        ("epoch 3 val_error: 0.12 MeanSquaredError: 0.31", None),
        ("0 errors, 0 warnings", None),
        ("error=0.12 failed=0", None),
        ("Errors: 0", None),
        ("exit code 0", None),
        ("Killed processes: none", None),
        ("epoch 1 loss 0.3", None),
    ],
)
def test_line_that_looks_like_an_error_is_told_from_a_healthy_one(text: str, error: str | None) -> None:
    assert scan(f"start\n{text}\n".encode()).last_error == error


def test_text_is_told_from_binary_data() -> None:
    assert scan("größe 1\r\n\x1b[32mfertig\x1b[0m\t█\n".encode()).is_text
    assert not scan(b"").is_text
    assert not scan(b" \n\n").is_text
    assert not scan(bytes(range(256)) * 100).is_text


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.words)
def test_words_of_every_rule_are_found_by_the_index(rule: Rule) -> None:
    searched = [*(rule.words for rule in RULES), *ERROR_WORDS]
    number = RULES.index(rule)
    index = WordIndex(searched)
    line = to_shapes(f"2026 12: a{searched[number]}b 3".encode())
    if number in index.without_letters:
        assert not re.search("[A-Za-z]", searched[number])
    else:
        assert number in index.find(line)
        assert number in index.find_all([line, b"nothing"])


MUTATIONS = 60


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Flip bytes, cut, repeat or nest a text."""
    kind = chance.randrange(5)
    if kind == 0:
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 20)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed)
    if kind == 1:
        return data[chance.randrange(len(data)) :] + data[: chance.randrange(len(data))]
    if kind == 2:
        return data * chance.randrange(2, 50)
    if kind == 3:
        return data.replace(b" ", b"\n" * chance.randrange(3)).replace(b"e", b"\x1b[31me")
    at = chance.randrange(len(data))
    return data[:at] + b'{"log": "' + data + b'\\n"}' + data[at:]


@pytest.mark.medium
def test_mutated_texts_are_read_without_an_error() -> None:
    chance = random.Random(7)  # noqa: S311  a test needs the same numbers every time
    start = time.process_time()
    for _, _, text in CASES:
        data = text.encode()
        for _ in range(MUTATIONS // 20):
            data = mutate(data, chance)[:200_000]
            for finding in scan(data).findings:
                assert len(finding.evidence) <= 400
    assert time.process_time() - start < 120  # 15 seconds on an idle machine


@pytest.mark.medium
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(Path(sys.executable).read_bytes()[: 4 << 20], id="ELF"),
        pytest.param(random.Random(3).randbytes(2 << 20), id="random"),  # noqa: S311  a test needs the same numbers every time
        pytest.param(b"[" * 3_000_000 + b" CUDA out of memory", id="brackets"),
        pytest.param(b"(CUDA error: " * 300_000, id="nested"),
        pytest.param(b"x" * 10_000_000, id="letters"),
        pytest.param(b" " * 10_000_000 + b"Killed", id="spaces"),
        pytest.param(b"Error: " * 1_500_000, id="errors"),
        pytest.param(b"\x1b]0;" * 1_000_000, id="escapes"),
        pytest.param(b"&#39;&lt;<br>**`" * 600_000, id="markup"),
        pytest.param(b"> " * 300_000 + b"\n" + b"| " * 300_000 + b"Killed", id="quotes"),
        pytest.param(b"\r" * 5_000_000, id="returns"),
        pytest.param("█".encode() * 3_000_000 + b"Killed", id="bars"),
        pytest.param(b"\0" * 10_000_000, id="zeros"),
    ],
)
def test_strange_data_takes_no_long_time(data: bytes) -> None:
    start = time.process_time()
    scan(data)
    assert time.process_time() - start < 20  # 2 seconds on an idle machine


def test_small_text_gives_the_same_as_its_scan() -> None:
    for _, _, text in CASES[::7]:
        assert read_log(text) == scan(text.encode()).findings


def test_a_message_that_appears_twice_is_no_unknown_error() -> None:
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    once = f'Traceback (most recent call last):\n  File "t.py", line 6, in <module>\n    main()\n{message}\n'
    scanner = LogScanner()
    scanner.feed((once + once).encode())
    reading = scanner.finish()
    assert [finding.kind for finding in reading.findings] == [FailureKind.CUDA_OOM]
    assert reading.unknown_end is None


def test_binary_data_has_no_message_of_a_key() -> None:
    scanner = LogScanner()
    scanner.feed(bytes(range(256)) * 100 + b"\n^C\n" + bytes(range(256)) * 100)
    reading = scanner.finish()
    assert not reading.is_text
    assert reading.findings == ()
