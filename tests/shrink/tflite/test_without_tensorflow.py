from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomph.errors import OomphError, UsageError
from oomph.shrink import TfliteRequest, shrink_tflite
from oomph.shrink.tflite._process import run_task
from oomph.shrink.tflite._run_process import dequantize, quantize
from oomph.shrink.tflite._tasks import RunTask
from oomph.shrink.tflite._tflite import accuracy


def test_accuracy_by_the_largest_output_or_by_a_threshold() -> None:
    classes = np.array([0, 1, 1])
    assert accuracy(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], np.float32), classes, None) == pytest.approx(2 / 3)
    assert accuracy(np.array([[0.4], [0.6], [0.7]], np.float32), classes, 0.5) == 1
    assert accuracy(np.array([[0.4], [0.6], [0.7]], np.float32), classes, 0.0) == pytest.approx(2 / 3)


def test_quantization_rounds_and_clips() -> None:
    tensor = {"dtype": np.int8, "quantization": (0.5, -10)}
    values = np.array([0.0, 1.2, 1000.0, -1000.0], np.float32)
    assert quantize(values, tensor).tolist() == [-10, -8, 127, -128]
    assert dequantize(np.array([-10, -8], np.int8), tensor).tolist() == [0, 1]
    floats: dict[str, Any] = {"dtype": np.float32, "quantization": (0.0, 0)}
    assert quantize(values, floats) is values
    assert np.array_equal(dequantize(values, floats), values)


def test_the_target_is_named_after_the_precision() -> None:
    assert TfliteRequest(Path("a/model.keras"), Path("data"), "int8").target == Path("a/model-int8.tflite")


def test_an_unknown_precision_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="the precision is 'int4'; use one of dynamic, float16, int8"):
        shrink_tflite(TfliteRequest(Path("m.keras"), Path("data"), "int4"))


def test_missing_packages_are_one_sentence() -> None:
    if importlib.util.find_spec("tensorflow") is not None:
        pytest.skip("TensorFlow is installed")
    with pytest.raises(UsageError, match=r"packages that aren't installed \(.*\); run `pip install 'oomph\[keras\]'`"):
        shrink_tflite(TfliteRequest(Path("m.keras"), Path("data")))
    with pytest.raises(UsageError, match=r"the package keras isn't installed; run `pip install 'oomph\[keras\]'`"):
        importlib.import_module("oomph.integrations.keras")


@pytest.mark.medium
def test_a_process_that_fails_is_one_sentence(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.npy")
    task = RunTask(str(tmp_path / "no.tflite"), missing, str(tmp_path), ("a",), (8, 8), (0, 255), missing)
    with pytest.raises(OomphError, match=r"TensorFlow's process failed \(.*\); report this|can't be run") as caught:
        run_task("_run_process", task)
    assert "\n" not in str(caught.value)
