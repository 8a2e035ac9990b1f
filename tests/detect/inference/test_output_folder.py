from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import oomph
from oomph.detect.inference._output_folder import FoundFiles


def written(folder: Path, *names: str) -> FoundFiles:
    files = FoundFiles(folder)
    files.open()
    for name in names:
        files.write(folder / name, lambda file: file.write(b"result"))
    files.close()
    return files


def test_a_result_is_known_by_the_next_run_until_it_is_touched(tmp_path: Path) -> None:
    written(tmp_path / "out", "a.txt", "below/b.txt")
    again = FoundFiles(tmp_path / "out")
    both = [tmp_path / "out" / name for name in ("a.txt", "below/b.txt")]
    assert all(again.is_result(one) for one in both)
    again.check(both, [])
    os.utime(both[0], ns=(1, 1))
    assert [again.is_result(one) for one in both] == [False, True]
    with pytest.raises(oomph.UsageError, match=r"would overwrite '.*a\.txt', which oomph didn't write"):
        again.check(both, [])


def test_results_never_lie_among_images_nor_take_their_place(tmp_path: Path) -> None:
    photo = tmp_path / "photos" / "a.jpg"
    photo.parent.mkdir()
    photo.write_bytes(b"photo")
    files = FoundFiles(tmp_path / "out")
    with pytest.raises(oomph.UsageError, match="would lie among the images"):
        files.check([photo.parent / "b.txt"], [photo])
    files.open()
    (tmp_path / "out" / "a.jpg").symlink_to(photo)
    with pytest.raises(oomph.UsageError, match="would overwrite"):
        files.check([tmp_path / "out" / "a.jpg"], [photo])
    (tmp_path / "out" / "dangling.jpg").symlink_to(tmp_path / "gone")
    with pytest.raises(oomph.UsageError, match="would overwrite"):
        files.check([tmp_path / "out" / "dangling.jpg"], [photo])


@pytest.mark.parametrize("ledger", ["", "[1, 2]", "{", '{"a.txt": "odd"}'])
def test_a_damaged_ledger_makes_every_file_somebody_else_s(tmp_path: Path, ledger: str) -> None:
    written(tmp_path, "a.txt")
    (tmp_path / ".oomph-found.json").write_text(ledger)
    assert not FoundFiles(tmp_path).is_result(tmp_path / "a.txt")


def test_files_outside_of_the_folder_are_no_results(tmp_path: Path) -> None:
    files = written(tmp_path / "out", "a.txt")
    (tmp_path / "a.txt").write_bytes(b"result")
    assert not files.is_result(tmp_path / "a.txt")
    assert not files.is_result(tmp_path / "out" / "never.txt")
    assert list(json.loads((tmp_path / "out" / ".oomph-found.json").read_text())) == ["a.txt"]


def test_a_folder_or_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(oomph.UsageError, match="can't be made"):
        FoundFiles(tmp_path / "file" / "out").open()
    with pytest.raises(oomph.OomphError, match=r"can't be written .*; make room"):
        FoundFiles(tmp_path).write(tmp_path / "file" / "a.txt", lambda file: file.write(b""))
