from __future__ import annotations

import subprocess
import sys

import pytest

import oomph.detect


@pytest.mark.subprocess
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
