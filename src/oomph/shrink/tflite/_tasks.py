"""Requests of the processes that convert and run models. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

ValueRange = tuple[float, float]


@dataclass(frozen=True)
class ConvertTask:
    """A model to convert, to fp32 and to a smaller precision.

    Attributes:
        weights: the .keras file.
        train: folder of the calibration images.
        names: names of the classes.
        precision: "dynamic", "float16" or "int8".
        imgsz: image size; None for that of the model.
        value_range: values of black and white.
        folder: where the files are written: fp32.tflite, and a file named after the precision.
    """

    weights: str
    train: str
    names: tuple[str, ...]
    precision: str
    imgsz: int | None
    value_range: ValueRange
    folder: str


@dataclass(frozen=True)
class ConvertedModel:
    """Description of a converted model.

    Attributes:
        size: height and width of its images.
        threshold: output above which the second of two classes is predicted; None if there is an output per class.
        parameters: number of weights and biases: of the model, of fp32.tflite, and of the smaller file.
        calibration_images: number of images that int8 was calibrated on.
    """

    size: tuple[int, int]
    threshold: float | None
    parameters: tuple[int, int, int]
    calibration_images: int


@dataclass(frozen=True)
class RunTask:
    """A file to run: for latency and memory on a few images, then on all images of a folder.

    Attributes:
        file: a .keras or .tflite file.
        inputs: .npy file of inputs (n, height, width, 3) as float32.
        folder: the folder of the val split.
        names: names of the classes.
        size: height and width.
        value_range: values of black and white.
        outputs: .npz file that is written: `outputs`, a row per image, and `indices`, numbers of the images.
        threads: number of threads of the network.
        warmup, runs: number of runs, each of one image; those of the warm-up are not timed.
    """

    file: str
    inputs: str
    folder: str
    names: tuple[str, ...]
    size: tuple[int, int]
    value_range: ValueRange
    outputs: str
    threads: int = 1
    warmup: int = 5
    runs: int = 40
