from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oomph.detect import ImageResult, read_results, write_results
from oomph.errors import MissingFile, UsageError


def test_results_survive_a_round_trip(tmp_path: Path) -> None:
    results = [
        ImageResult(np.ones((2, 6), np.float32), np.zeros((0, 5), np.float32)),
        ImageResult(np.zeros((0, 6), np.float32), np.ones((3, 5), np.float32)),
    ]
    write_results(tmp_path / "results.npz", results, ["a", "ö"])
    loaded, names = read_results(tmp_path / "results.npz")
    assert names == ("a", "ö")
    assert [(len(result.predictions), len(result.truth)) for result in loaded] == [(2, 0), (0, 3)]
    write_results(tmp_path / "none.npz", [], ["a"])
    assert read_results(tmp_path / "none.npz") == ([], ("a",))


def test_other_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_results(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UsageError, match="contains no predictions"):
        read_results(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(UsageError, match="contains no predictions"):
        read_results(tmp_path / "other.npz")
