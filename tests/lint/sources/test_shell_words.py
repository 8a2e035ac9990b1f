from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.lint.sources._shell_words import split_words


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in split_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\"", [["a", "b c", "d e"]]),
        ('--x="a b",c', [["--x=a b,c"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a > out.txt 2>&1 -b", [["a", "-b"]]),
        ("a # comment; b\nc", [["a"], ["c"]]),
        ("x=$(a b) c", [["a", "b"], ["x=", "c"]]),
        ('echo "$(a b)"', [["a", "b"], ["echo", ""]]),
        ("(cd x && ls)", [["cd", "x"], ["ls"]]),
        ("echo $((1 + 2)) x", [["echo", "", "x"]]),
        ("a\\ b c", [["a b", "c"]]),
        ("a 'unclosed b", [["a", "unclosed b"]]),
        ("", []),
    ],
)
def test_words_are_those_of_a_shell(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


@given(st.text(alphabet="ab '\"\\$()<>|&;#`\n=-", max_size=60))
def test_words_have_their_place(text: str) -> None:
    for command in split_words(text):
        for word in command:
            assert 0 <= word.start < word.end <= len(text)
            if not set(text[word.start : word.end]) & set("\\\"'$`"):
                assert text[word.start : word.end] == word.text
