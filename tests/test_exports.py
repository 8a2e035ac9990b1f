"""`__all__` is sorted and equals what is public, at every door."""

from __future__ import annotations

import importlib
import types
from pathlib import Path

import pytest

import oomph

ROOT = Path(oomph.__file__).parent
DOORS = sorted(".".join(("oomph", *path.parent.relative_to(ROOT).parts)) for path in ROOT.rglob("__init__.py"))


@pytest.mark.parametrize("door", DOORS)
def test_all_is_sorted_and_names_what_is_public(door: str) -> None:
    module = importlib.import_module(door)
    listed = module.__all__
    assert listed == sorted(listed, key=_isort)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name not in {"annotations", "TYPE_CHECKING"}
    }
    assert public <= set(listed)
    for name in listed:
        assert getattr(module, name) is not None


def _isort(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022: constants, classes, then the rest."""
    return (0 if name.isupper() and not name.startswith("_") else 1 if name[0].isupper() else 2, name)


def test_the_root_says_where_each_name_lives() -> None:
    assert sorted([*oomph._HOME, "__version__"]) == sorted(oomph.__all__)
    assert dir(oomph) == sorted(oomph.__all__)
