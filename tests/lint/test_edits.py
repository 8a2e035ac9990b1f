from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oomph.lint import Edit, Problem, Span, fix_text, lint_text
from oomph.lint._fixes import apply_edits, choose_fixes
from oomph.lint.sources import split_lines

# Characters of one to four bytes, combining ones, separators that end no line in Python, and all ends of lines.
CHARACTERS = "ab =é日😀e\u0301\t\x0c\x1c\u2028\x85\r\n"
texts = st.text(alphabet=CHARACTERS, max_size=80)
replacements = st.text(alphabet="xyz😀é ", min_size=1, max_size=5).filter(str.strip)


def spans(text: str, draw: st.DataObject) -> list[tuple[int, int, Span]]:
    """Return ranges of characters that don't overlap, each within a line, with their spans."""
    result = []
    offset = 0
    for number, line in enumerate(split_lines(text), 1):
        width = len(line.rstrip("\r\n"))
        columns = sorted(draw.draw(st.sets(st.integers(0, width), max_size=4)))
        for start, end in zip(columns[::2], columns[1::2], strict=False):
            result.append((offset + start, offset + end, Span(None, number, start, number, end)))
        offset += len(line)
    return result


@given(texts, st.data())
def test_edits_hit_the_characters_of_their_spans(text: str, draw: st.DataObject) -> None:
    ranges = spans(text, draw)
    expected, edits = text, []
    for start, end, span in reversed(ranges):
        replacement = draw.draw(replacements)
        expected = expected[:start] + replacement + expected[end:]
        edits.append(Edit(span, replacement))
    assert apply_edits(text, draw.draw(st.permutations(edits))) == expected


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_chosen_fixes_never_overlap(places: list[tuple[int, int, int]]) -> None:
    problems = []
    for line, start, length in places:
        span = Span(None, line, start, line, start + length)
        problems.append(Problem(span, "", (Edit(span, "x"),)))
    chosen = [problem.span for problem in choose_fixes(problems)]
    assert bool(chosen) == bool(problems)
    for first in chosen:
        for second in chosen:
            if first is not second and first.line == second.line:
                assert first.end_column <= second.column or second.end_column <= first.column


@given(st.text(alphabet="é日😀e\u0301x'", max_size=10), st.sampled_from(["\n", "\r\n"]))
def test_fix_behind_wide_characters(prefix: str, end: str) -> None:
    line = f"x = {prefix!r}; y = torch.cuda.amp.autocast()"
    text = f"import torch{end}{line}{end}"
    fixed, count = fix_text(text, "a.py")
    assert count == 1
    assert fixed == text.replace("torch.cuda.amp.autocast()", 'torch.amp.autocast("cuda")')
    assert not lint_text(fixed, "a.py").diagnostics
