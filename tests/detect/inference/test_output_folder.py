from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import oomph
from oomph.detect.inference._output_folder import OutputFolder


def write_outputs(folder: Path, *names: str) -> OutputFolder:
    output = OutputFolder(folder)
    output.create()
    for name in names:
        output.write(folder / name, lambda file: file.write(b"result"))
    output.save_manifest()
    return output


def test_outputs_are_recognized_until_they_are_modified(tmp_path: Path) -> None:
    write_outputs(tmp_path / "out", "a.txt", "below/b.txt")
    output = OutputFolder(tmp_path / "out")
    paths = [tmp_path / "out" / name for name in ("a.txt", "below/b.txt")]
    assert all(output.is_output(path) for path in paths)
    output.check(paths, [])
    os.utime(paths[0], ns=(1, 1))
    assert [output.is_output(path) for path in paths] == [False, True]
    with pytest.raises(oomph.UsageError, match=r"would overwrite '.*a\.txt', which oomph didn't write"):
        output.check(paths, [])


def test_outputs_never_lie_among_the_sources_nor_replace_them(tmp_path: Path) -> None:
    photo = tmp_path / "photos" / "a.jpg"
    photo.parent.mkdir()
    photo.write_bytes(b"photo")
    output = OutputFolder(tmp_path / "out")
    with pytest.raises(oomph.UsageError, match="contains the source images"):
        output.check([photo.parent / "b.txt"], [photo])
    output.create()
    (tmp_path / "out" / "a.jpg").symlink_to(photo)
    with pytest.raises(oomph.UsageError, match="would overwrite"):
        output.check([tmp_path / "out" / "a.jpg"], [photo])
    (tmp_path / "out" / "dangling.jpg").symlink_to(tmp_path / "gone")
    with pytest.raises(oomph.UsageError, match="would overwrite"):
        output.check([tmp_path / "out" / "dangling.jpg"], [photo])


@pytest.mark.parametrize("manifest", ["", "[1, 2]", "{", '{"a.txt": "odd"}'])
def test_with_a_damaged_manifest_no_file_is_an_output(tmp_path: Path, manifest: str) -> None:
    write_outputs(tmp_path, "a.txt")
    (tmp_path / ".oomph-outputs.json").write_text(manifest)
    assert not OutputFolder(tmp_path).is_output(tmp_path / "a.txt")


def test_files_outside_of_the_folder_are_not_outputs(tmp_path: Path) -> None:
    output = write_outputs(tmp_path / "out", "a.txt")
    (tmp_path / "a.txt").write_bytes(b"result")
    assert not output.is_output(tmp_path / "a.txt")
    assert not output.is_output(tmp_path / "out" / "never.txt")
    assert list(json.loads((tmp_path / "out" / ".oomph-outputs.json").read_text())) == ["a.txt"]


def test_folders_and_files_that_cannot_be_written_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(oomph.UsageError, match="can't be created"):
        OutputFolder(tmp_path / "file" / "out").create()
    with pytest.raises(oomph.OomphError, match=r"can't be written .*; free some disk space"):
        OutputFolder(tmp_path).write(tmp_path / "file" / "a.txt", lambda file: file.write(b""))
