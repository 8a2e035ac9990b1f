from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import oomph.detect


@pytest.mark.medium
def test_sample_builders_import_no_torch() -> None:
    code = """
import pickle, sys
import oomph.detect
from oomph.detect import Augmentation, LabelTable, build_sample, read_dataset
from oomph.detect.dataset import MosaicSamples, RectLetterboxSamples, tile_train_loader
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_raise_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = oomph.detect.nope  # type: ignore[attr-defined]
    assert dir(oomph.detect) == sorted(oomph.detect.__all__)


ROOT = Path(oomph.detect.__file__).parent


@pytest.mark.parametrize("path", sorted(path.relative_to(ROOT) for path in ROOT.glob("*/*.py")), ids=str)
def test_subpackages_import_one_way_and_through_the_door(path: Path) -> None:
    order = oomph.detect._SUBPACKAGES
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level != 2 or node.module is None:
            continue
        package, _, module = node.module.partition(".")
        if not package.startswith("_"):  # modules of oomph.detect itself
            assert order.index(package) < order.index(path.parts[0]), f"{path} imports {package}"
            assert not module, f"{path} imports {node.module} past the door"
