"""Places for the labels of markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

Box = tuple[float, float, float, float]  # left, bottom, right, top in pixels

_GAP = 11  # pixels between the center of a marker and its label
_MAX_SHIFT, _MAX_REQUIRED_SHIFT = 2, 5  # heights of a label that it may be moved up or down
_STROKE_COST = 0.75  # a label on a point of a line is as bad as one that is this many places farther away


@dataclass(frozen=True)
class Label:
    """A label to place.

    Attributes:
        x, y: the center of its marker.
        width, height: its size.
        required: True if it must be placed even where it overlaps something.
    """

    x: float
    y: float
    width: float
    height: float
    required: bool


def place_labels(
    labels: Sequence[Label], frame: Box, markers: Sequence[Box], strokes: Sequence[tuple[float, float]]
) -> list[Box | None]:
    """Return a box beside each marker, inside the frame; None where all are taken and the label isn't required.

    Required labels choose first.

    Args:
        labels: the labels to place.
        frame: the box that no label leaves.
        markers: the boxes that no label covers.
        strokes: points of lines, which labels avoid if they can.
    """
    taken = list(markers)
    places: list[Box | None] = [None] * len(labels)
    for index in sorted(range(len(labels)), key=lambda index: not labels[index].required):
        places[index] = _choose_place(labels[index], frame, taken, strokes)
        if (place := places[index]) is not None:
            taken.append(place)
    return places


def _choose_place(label: Label, frame: Box, taken: Sequence[Box], strokes: Sequence[tuple[float, float]]) -> Box | None:
    places = [_moved_inside(place, frame) for place in _places(label)]
    free = [
        (number + _STROKE_COST * sum(_contains(place, point) for point in strokes), place)
        for number, place in enumerate(places)
        if not any(_overlap(place, other) for other in taken)
    ]
    if free:
        return min(free, key=itemgetter(0))[1]
    return min(places, key=lambda place: sum(_overlap(place, other) for other in taken)) if label.required else None


def _places(label: Label) -> Iterator[Box]:
    """Yield boxes beside a marker, from the best to the farthest."""
    max_shift = _MAX_REQUIRED_SHIFT if label.required else _MAX_SHIFT
    for shift in range(max_shift + 1):
        for sign in (-1, 1) if shift else (1,):
            middle = label.y + sign * shift * label.height
            for left in (label.x + _GAP, label.x - _GAP - label.width, label.x - label.width / 2):
                yield (left, middle - label.height / 2, left + label.width, middle + label.height / 2)


def _moved_inside(box: Box, frame: Box) -> Box:
    left, top, right, bottom = box
    x = max(frame[0] - left, 0) or min(frame[2] - right, 0)
    y = max(frame[1] - top, 0) or min(frame[3] - bottom, 0)
    return left + x, top + y, right + x, bottom + y


def _overlap(first: Box, second: Box) -> float:
    """Return the area that two boxes share."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(width, 0.0) * max(height, 0.0)


def _contains(box: Box, point: tuple[float, float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]
