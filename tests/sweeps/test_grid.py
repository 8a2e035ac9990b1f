from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph import document
from oomph.errors import UsageError
from oomph.sweeps import Cell, Grid

VALUES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=200))


def test_cells_are_all_combinations_in_order_with_their_seeds_together() -> None:
    grid = Grid((("batch", (16, 32)), ("img", (320, 640, 320))), (0, 1, 1))
    assert [cell.name for cell in grid.cells()] == [
        "batch=16,img=320,seed=0",
        "batch=16,img=320,seed=1",
        "batch=16,img=640,seed=0",
        "batch=16,img=640,seed=1",
        "batch=32,img=320,seed=0",
        "batch=32,img=320,seed=1",
        "batch=32,img=640,seed=0",
        "batch=32,img=640,seed=1",
    ]
    assert Grid((("a", (1, "1", 1.0, "x", 2, "x")),)).axes == (("a", (1, "x", 2)),)
    assert Grid(()).cells() == (Cell((), 0),)


@given(st.lists(st.tuples(VALUES, VALUES, st.integers(0, 9)), max_size=20))
def test_names_are_folder_names_and_no_two_cells_share_one(rows: list[tuple[int | float | str, ...]]) -> None:
    cells = {Cell((("a", a), ("b", b)), int(seed)) for a, b, seed in rows}
    texts = {(str(dict(cell.values)["a"]), str(dict(cell.values)["b"]), cell.seed) for cell in cells}
    names = {cell.name for cell in cells}
    assert len(names) == len(texts)
    for name in names:
        assert len(name) <= 129
        assert not set(name) & set("/\\\0 \n'\"")
        assert name.isascii()


@pytest.mark.parametrize(
    ("axes", "seeds", "message"),
    [
        ((("batch", ()),), (0,), "the axis batch has no values"),
        ((("batch", (1,)), ("batch", (2,))), (0,), "the axis batch is given twice"),
        ((("seed", (1,)),), (0,), "seed is not an axis"),
        ((("a b", (1,)),), (0,), "'a b' is not a name of an axis"),
        ((), (), "without seeds has no cells"),
    ],
)
def test_invalid_grids_are_one_sentence(
    axes: tuple[tuple[str, tuple[int, ...]], ...], seeds: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Grid(axes, seeds)


def test_a_grid_survives_json() -> None:
    grid = Grid((("lr", (0.1, 1, "1e-3")),), (0, 3))
    assert document.read("grid", 1, Grid, document.write("grid", 1, grid)) == grid
