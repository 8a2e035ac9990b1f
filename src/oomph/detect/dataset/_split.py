"""A split of a dataset: its image files and their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import MissingFile, UsageError
from ._data_yaml import FIX_PATH, Dataset
from ._image_files import find_split_images, is_list_file
from ._issues import DataIssue, IssueLog
from ._labels import LabelTable, label_path, read_labels


@dataclass(frozen=True)
class Split:
    """The usable images of a split and their boxes.

    Attributes:
        name: "train", "val" or "test".
        images: paths of the images.
        labels: boxes of all images.
        issues: what was skipped or fixed.
    """

    name: str
    images: tuple[Path, ...]
    labels: LabelTable
    issues: tuple[DataIssue, ...]


def read_split(dataset: Dataset, name: str, max_broken_fraction: float = 0.1) -> Split:
    """Find the images of a split and read their labels; unusable ones are skipped and listed in `issues`.

    Args:
        dataset: content of the yaml.
        name: "train", "val" or "test".
        max_broken_fraction: fraction of images, label files and boxes that may be broken.

    Raises:
        MissingFile: a folder or list of the split doesn't exist.
        UsageError: the split isn't named, has no images, or too much of it is broken.
    """
    if name in dataset.missing:
        raise MissingFile(dataset.missing[name], FIX_PATH)
    if name not in dataset.splits:
        raise UsageError(f"{dataset.file} names no {name} images", f"add a line `{name}: images/{name}`")
    log, source = IssueLog(), str(dataset.file)
    images = find_split_images(dataset.splits[name], dataset.root, dataset.roots, log)
    log.raise_if_too_many("image", len(images) + log.broken("image"), max_broken_fraction, source)
    if not images:
        raise UsageError(f"the {name} split of {dataset.file} has no images", "check the paths in it")
    files, roots = [label_path(image) for image in images], _label_roots(dataset, name, images)
    labels, usable = read_labels(files, len(dataset.names), roots, log)
    log.raise_if_too_many("label file", len(images), max_broken_fraction, source)
    log.raise_if_too_many("box", len(labels.boxes) + log.broken("box"), max_broken_fraction, source)
    return Split(name, tuple(images[index] for index in usable), labels, log.summary())


def _label_roots(dataset: Dataset, name: str, images: Sequence[Path]) -> Sequence[Path]:
    """Return the folders that labels may be in: those of the yaml, and those next to the images of its lists."""
    if not any(is_list_file(entry) for entry in dataset.splits[name]):
        return dataset.roots
    folders = {label_path(folder / "any").parent for folder in {image.parent for image in images}}
    return (*dataset.roots, *(folder.resolve() for folder in folders))


def shared_images(first: Split, second: Split) -> int:
    """Return the number of images that two splits share; if any, the mAP of the second is misleading."""
    return len({image.resolve() for image in first.images} & {image.resolve() for image in second.images})


def as_single_cls(dataset: Dataset, splits: tuple[Split, Split]) -> tuple[Dataset, tuple[Split, Split]]:
    """Return the dataset and splits with all classes merged into one."""
    if len(dataset.names) == 1:
        return dataset, splits
    first, second = (replace(split, labels=split.labels.as_single_cls()) for split in splits)
    return replace(dataset, names=("item",)), (first, second)
