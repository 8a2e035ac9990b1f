from __future__ import annotations

import os
from pathlib import Path

import pytest

from oomph.data import walk_images


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for name in ("b.jpg", "a/z.png", "a/a/y.jpg", "a.b/x.JPG", "c/w.bmp", "c/notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"image")
    outside.mkdir()
    (outside / "v.jpg").write_bytes(b"image")
    return root


def names(*args: object, **options: object) -> list[str]:
    return [os.fsdecode(file.name) for file in walk_images(*args, **options)]  # type: ignore[arg-type]


def test_files_and_folders_are_sorted_together(tree: Path) -> None:
    paths = [path for path in sorted(tree.rglob("*")) if path.is_file() and path.suffix != ".txt"]
    assert names(tree) == ["a/a/y.jpg", "a/z.png", "a.b/x.JPG", "b.jpg", "c/w.bmp"]
    assert names(tree) == [str(path.relative_to(tree)) for path in paths]


def test_files_first_is_the_order_of_os_walk(tree: Path) -> None:
    walked = []
    for folder, folders, files in os.walk(tree):
        folders.sort()
        walked += [os.path.relpath(Path(folder, file), tree) for file in sorted(files) if not file.endswith(".txt")]
    assert names(tree, files_first=True) == walked == ["b.jpg", "a/z.png", "a/a/y.jpg", "a.b/x.JPG", "c/w.bmp"]


def test_suffixes_select_files(tree: Path) -> None:
    assert names(tree, suffixes={".txt", ".bmp"}) == ["c/notes.txt", "c/w.bmp"]


def test_files_have_size_and_modification_time(tree: Path) -> None:
    file = next(iter(walk_images(tree)))
    status = (tree / "a/a/y.jpg").stat()
    assert (file.status, file.reason) == ((status.st_size, status.st_mtime_ns), None)


def test_links_that_leave_the_folder_are_reported(tree: Path) -> None:
    (tree / "link.jpg").symlink_to(tree.parent / "outside/v.jpg")
    (tree / "folder").symlink_to(tree.parent / "outside")
    (tree / "inner").symlink_to(tree / "c")
    (tree / "same.jpg").symlink_to(tree / "b.jpg")
    reasons = {file.name: file.reason for file in walk_images(tree)}
    assert reasons[b"link.jpg"] == reasons[b"folder"] == "a link to a place outside the folder"
    assert reasons[b"same.jpg"] is None
    assert not any(name.startswith(b"inner") for name in reasons)


def test_links_to_files_are_files_without_the_check(tree: Path) -> None:
    (tree / "link.jpg").symlink_to(tree.parent / "outside/v.jpg")
    (tree / "folder").symlink_to(tree.parent / "outside")
    (tree / "dangling.jpg").symlink_to(tree / "nowhere.jpg")
    reasons = {file.name: file.reason for file in walk_images(tree, check_links=False)}
    assert reasons[b"link.jpg"] is None
    assert reasons[b"dangling.jpg"] == "can't be read: No such file or directory"
    assert not any(name.startswith(b"folder") for name in reasons)


def test_linked_folders_are_followed_once_and_with_permission(tree: Path) -> None:
    (tree / "d").symlink_to(tree.parent / "outside")
    (tree / "e").symlink_to(tree.parent / "outside")
    (tree / "loop").symlink_to(tree)
    links: list[tuple[str, str]] = []

    def follow(path: str, target: str) -> bool:
        links.append((path, target))
        return True

    found = names(tree, check_links=False, follow_link=follow)
    assert found == ["a/a/y.jpg", "a/z.png", "a.b/x.JPG", "b.jpg", "c/w.bmp", "d/v.jpg"]
    assert links[0] == (str(tree / "d"), str((tree.parent / "outside").resolve()))
    assert names(tree, check_links=False, follow_link=lambda *_: False) == found[:-1]


def test_unreadable_folder_is_reported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: bytes) -> object:
        if path.endswith(b"/c"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [(file.name, file.reason) for file in walk_images(tree)][-1] == (b"c", "can't be read: Permission denied")
