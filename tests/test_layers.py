"""The layers import one way, and only through their doors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import oomph

ROOT = Path(oomph.__file__).parent

# Later ones may import earlier ones, never the other way round.
LAYERS = (
    "errors",
    "units",
    "files",
    "document",
    "display",
    "charts",
    "settings",
    "job",
    "adapters",
    "batch",
    "losses",
    "machine",
    "failures",
    "patches",
    "trace",
    "prediction",
    "script",
    "data",
    "planner",
    "monitor",
    "distributed",
    "recovery",
    "supervisor",
    "detect",
    "sweeps",
    "shrink",
    "lint",
    "report",
    "integrations",
    "notebook",
    "cli",
    "__main__",
)
NO_TORCH = {
    "errors",
    "units",
    "files",
    "document",
    "display",
    "charts",
    "settings",
    "job",
    "adapters",
    "machine",
    "failures",
    "prediction",
    "planner",
    "supervisor",
    "sweeps",
    "lint",
    "report",
    "notebook",
}
# The only calls of a later layer; the docstring of the module says why.
INVERSIONS = {("display", "report")}
# Run by a process of their own, imported by nothing.
TORCH_PROCESSES = {Path("sweeps/_detector_process.py"), Path("sweeps/_job_process.py")}
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Every module a file imports, as absolute dotted parts."""
    package = ("oomph", *path.parts[:-1])
    tree = ast.parse((ROOT / path).read_text())
    for block in [node for node in ast.walk(tree) if isinstance(node, ast.If)]:
        if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            block.body = []  # never imported at run time
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = (*base, *(node.module.split(".") if node.module else ()))
            if node.level and not node.module:
                yield from ((*whole, alias.name) for alias in node.names)
            else:
                yield whole


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(path) for path in FILES} - {"__init__"} <= set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_go_one_way_and_through_the_door(path: Path) -> None:
    own = layer_of(path)
    for target in imports(path):
        if target[0] != "oomph" or len(target) == 1 or target == ("oomph", "__version__"):
            continue
        layer = target[1]
        if own in {"__init__", layer} or (own, layer) in INVERSIONS:
            continue
        assert LAYERS.index(layer) < LAYERS.index(own), f"{path} imports {'.'.join(target)}, a layer below it"
        assert len(target) == 2, f"{path} imports {'.'.join(target)} past the door of {layer}"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_layers_that_need_no_torch_import_none(path: Path) -> None:
    if layer_of(path) in NO_TORCH and path not in TORCH_PROCESSES:
        assert not [target for target in imports(path) if target[0] in {"torch", "torchvision", "numpy"}]


def test_this_test_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "units.py"
    bad.write_text("from .machine import Machine\nfrom .machine._gpu import Gpu\nfrom . import report\n")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    found = list(imports(Path("units.py")))
    assert found == [("oomph", "machine"), ("oomph", "machine", "_gpu"), ("oomph", "report")]
    with pytest.raises(AssertionError, match="a layer below"):
        test_imports_go_one_way_and_through_the_door(Path("units.py"))
