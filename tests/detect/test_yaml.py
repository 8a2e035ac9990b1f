from __future__ import annotations

from pathlib import Path

import pytest

from oomph.detect._yaml import quote, read_yaml
from oomph.errors import MissingFile, UsageError


def test_quoted_values_are_truncated() -> None:
    assert quote("short") == "'short'"
    nested = {f"key{number}": list(range(50)) for number in range(50)}
    assert len(quote(nested)) == 61
    assert quote(nested).endswith("…")


@pytest.mark.parametrize(
    ("text", "message"), [("- a", "contains a list, not a mapping"), ("a: [", "is not valid YAML"), ("", "a NoneType")]
)
def test_read_yaml_rejects_other_content(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_yaml(tmp_path / "a.yaml")


def test_read_yaml_rejects_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no file"):
        read_yaml(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match="can't be read"):
        read_yaml(tmp_path)
