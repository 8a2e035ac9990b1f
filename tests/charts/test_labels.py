from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from oomph.charts._labels import Box, Label, place_labels

FRAME = (0.0, 0.0, 400.0, 300.0)


def label(x: float, y: float, *, required: bool = True) -> Label:
    return Label(x, y, 100, 16, required)


def circle(x: float, y: float) -> Box:
    return x - 6, y - 6, x + 6, y + 6


def shared_area(first: Box, second: Box) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(width, 0) * max(height, 0)


def test_a_label_is_at_the_right_of_its_marker() -> None:
    assert place_labels([label(100, 100)], FRAME, [circle(100, 100)], []) == [(111, 92, 211, 108)]


def test_at_the_right_edge_it_is_at_the_left() -> None:
    assert place_labels([label(390, 100)], FRAME, [circle(390, 100)], []) == [(279, 92, 379, 108)]


def test_it_moves_away_from_a_line() -> None:
    line = [(x, 100.0) for x in range(0, 400, 4)]
    (place,) = place_labels([label(100, 100)], FRAME, [circle(100, 100)], line)
    assert place is not None
    assert place[3] < 100 or place[1] > 100


def test_labels_of_equal_points_are_stacked() -> None:
    labels = [label(200, 150, required=index == 0) for index in range(6)]
    places = place_labels(labels, FRAME, [circle(200, 150)] * 6, [])
    shown = [place for place in places if place is not None]
    assert len(shown) == 6
    assert not any(shared_area(first, second) for first, second in itertools.combinations(shown, 2))


def test_without_space_only_required_labels_are_placed() -> None:
    everything = [FRAME]
    places = place_labels([label(200, 150), label(200, 150, required=False)], FRAME, everything, [])
    assert [place is None for place in places] == [False, True]


def test_required_labels_choose_first() -> None:
    places = place_labels([label(100, 100, required=False), label(100, 100)], FRAME, [circle(100, 100)], [])
    assert places[1:] == [(111, 92, 211, 108)]
    assert places[0] not in {places[1], None}


@given(st.lists(st.tuples(st.floats(0, 400), st.floats(0, 300), st.booleans()), max_size=12))
def test_labels_stay_inside_and_optional_ones_cover_nothing(points: list[tuple[float, float, bool]]) -> None:
    labels = [label(x, y, required=required) for x, y, required in points]
    circles = [circle(x, y) for x, y, _ in points]
    places = place_labels(labels, FRAME, circles, [])
    for index, place in enumerate(places):
        if place is None:
            assert not labels[index].required
            continue
        # With a tolerance, because a sum of floats may end a rounding error beyond the frame.
        assert min(place[:2]) >= -1e-9
        assert place[2] <= FRAME[2] + 1e-9
        assert place[3] <= FRAME[3] + 1e-9
        if not labels[index].required:
            others = [other for number, other in enumerate(places) if other is not None and number != index]
            assert not any(shared_area(place, other) > 1e-6 for other in [*others, *circles])
