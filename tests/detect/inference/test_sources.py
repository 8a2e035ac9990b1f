from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oomph
from oomph.detect.inference._sources import SourceImage, find_images, result_names


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos/a.jpg", "photos/b.PNG", "photos/deep er/c.jpeg", "photos/notes.md", "photos/clip.mp4"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("list.txt").write_text("\ufeff# some\nphotos/b.PNG\n\n  photos/a.jpg  \n", encoding="utf-8")


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (["photos"], ["a.jpg", "b.PNG", "deep er/c.jpeg"]),
        (["photos/a.jpg", "photos"], ["a.jpg", "b.PNG", "deep er/c.jpeg"]),
        (["photos/*"], ["a.jpg", "b.PNG", "c.jpeg"]),
        (["photos/**/*.jpeg"], ["c.jpeg"]),
        (["list.txt"], ["b.PNG", "a.jpg"]),
        (["photos/../photos/a.jpg", "photos/a.jpg"], ["a.jpg"]),
    ],
)
def test_images_are_found_once_however_they_are_named(sources: list[str], found: list[str]) -> None:
    assert [str(one.below) for one in find_images(sources)] == found


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("photos/clip.mp4", "is a video"),
        ("rtsp://camera", "is an address"),
        ("screen", "is a camera or screen"),
        ("photos/*.bmp", "there is no image or folder"),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(source: str, words: str) -> None:
    with pytest.raises(oomph.OomphError, match=words):
        find_images([source])


PLACES = st.tuples(
    st.sampled_from(["a", "b", "a/b"]), st.sampled_from(["x.jpg", "x.png", "x.png.jpg", "X.jpg", "x", "y.png"])
)


@given(st.lists(PLACES, min_size=1, unique=True))
def test_every_image_has_a_name_of_its_own_for_its_results(places: list[tuple[str, str]]) -> None:
    images = [SourceImage(Path("/top") / folder / name, Path(name)) for folder, name in places]
    found = [str(one).casefold() for one in result_names(images)]
    paths = {str(image.path).casefold() for image in images}
    if len(paths) == len(images):  # two files that differ in capitals alone can't be told apart everywhere
        assert len(set(found)) == len(images)
