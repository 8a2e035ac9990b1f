from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oomph
from oomph.detect.inference._sources import SourceImage, find_images, output_names


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos/a.jpg", "photos/b.PNG", "photos/deep er/c.jpeg", "photos/notes.md", "photos/clip.mp4"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("list.txt").write_text("\ufeff# some\nphotos/b.PNG\n\n  photos/a.jpg  \n", encoding="utf-8")


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["photos"], ["a.jpg", "b.PNG", "deep er/c.jpeg"]),
        (["photos/a.jpg", "photos"], ["a.jpg", "b.PNG", "deep er/c.jpeg"]),
        (["photos/*"], ["a.jpg", "b.PNG", "c.jpeg"]),
        (["photos/**/*.jpeg"], ["c.jpeg"]),
        (["list.txt"], ["b.PNG", "a.jpg"]),
        (["photos/../photos/a.jpg", "photos/a.jpg"], ["a.jpg"]),
    ],
)
def test_every_image_is_found_once(sources: list[str], expected: list[str]) -> None:
    assert [str(image.relative) for image in find_images(sources)] == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("photos/clip.mp4", "is a video"),
        ("rtsp://camera", "is a URL"),
        ("screen", "is a camera or screen"),
        ("photos/*.bmp", "there is no image or folder"),
    ],
)
def test_other_sources_are_rejected_with_the_reason(source: str, message: str) -> None:
    with pytest.raises(oomph.OomphError, match=message):
        find_images([source])


PATHS = st.tuples(
    st.sampled_from(["a", "b", "a/b"]), st.sampled_from(["x.jpg", "x.png", "x.png.jpg", "X.jpg", "x", "y.png"])
)


@given(st.lists(PATHS, min_size=1, unique=True))
def test_output_names_are_unique(paths: list[tuple[str, str]]) -> None:
    images = [SourceImage(Path("/top") / folder / name, Path(name)) for folder, name in paths]
    names = [str(name).casefold() for name in output_names(images)]
    distinct = {str(image.path).casefold() for image in images}
    if len(distinct) == len(images):  # some file systems can't distinguish files that differ only in case
        assert len(set(names)) == len(images)
