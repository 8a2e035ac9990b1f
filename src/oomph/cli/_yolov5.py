"""YOLOv5 flags that oomph doesn't have: some are ignored with a note, the others are rejected with the reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..errors import UsageError

_IMAGE_SIZE_FLAGS = ("--img", "--imgsz", "--img-size")


@dataclass(frozen=True)
class IgnoredFlag:
    """A flag that is accepted without effect.

    Attributes:
        note: what happens instead.
        values: words that may follow the flag; any word if None.
    """

    note: str
    values: Collection[str] | None = ()

    def has_value(self, word: str) -> bool:
        """Return True if a word after the flag is its value."""
        return not word.startswith("-") if self.values is None else word in self.values


@dataclass(frozen=True)
class ForeignFlags:
    """Flags of a YOLOv5 command that oomph doesn't have.

    Attributes:
        ignored: flags that are accepted without effect.
        settings: flags that are settings here, with an example line.
        rejected: the other flags, with the reason.
    """

    ignored: dict[str, IgnoredFlag] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)


_CACHE = IgnoredFlag("decoded images are cached automatically if they fit into memory", ("ram", "disk", "val"))
_EXIST_OK = IgnoredFlag("existing runs are never overwritten; a new folder gets a number")
_LOCAL_RANK = IgnoredFlag("torchrun sets the rank", None)
_HALF = IgnoredFlag("boxes are computed in full precision")
_NO_LOGGING, _NO_UPLOAD = "oomph logs to no service", "oomph uploads nothing"
_NO_OPENCV = "networks run in torch or ONNX Runtime"
_NO_TTA = "there is no test-time augmentation"

TRAIN = ForeignFlags(
    ignored={
        "--cache": _CACHE,
        "--cache-images": _CACHE,
        "--exist-ok": _EXIST_OK,
        "--local-rank": _LOCAL_RANK,
        "--local_rank": _LOCAL_RANK,
        "--noplots": IgnoredFlag("plots are always drawn; they take almost no time"),
        "--nosave": IgnoredFlag("checkpoints are always written, for --resume"),
    },
    settings={
        "--adam": "optimizer: AdamW",
        "--cos-lr": "cos_lr: true",
        "--freeze": "freeze: 10",
        "--label-smoothing": "label_smoothing: 0.1",
        "--noval": "val_interval: 1000",
        "--optimizer": "optimizer: AdamW",
        "--patience": "patience: 50",
        "--seed": "seed: 1",
        "--single-cls": "single_cls: true",
    },
    rejected={
        "--artifact_alias": _NO_LOGGING,
        "--bbox_interval": _NO_LOGGING,
        "--bucket": _NO_UPLOAD,
        "--entity": _NO_LOGGING,
        "--evolve": "there is no hyperparameter search",
        "--image-weights": "every image is used once per epoch",
        "--linear-lr": "the learning rate decays linearly unless the settings contain `cos_lr: true`",
        "--multi-scale": "images keep their size, so that the planned memory is the memory used",
        "--noautoanchor": "anchors are fitted only if they match fewer than 98 % of the boxes",
        "--project": "runs are in runs/train of the current folder",
        "--quad": "there is no quad loader",
        "--rect": "validation is always rectangular, training never is",
        "--save-period": "best.pt and last.pt are saved; `checkpoint_minutes: 10` in the settings sets how often the "
        "checkpoint is",
        "--sync-bn": "each rank uses the statistics of its own images, so that it can retry a step that runs out of "
        "memory",
        "--upload_dataset": _NO_UPLOAD,
    },
)
VAL = ForeignFlags(
    ignored={
        "--exist-ok": _EXIST_OK,
        "--half": _HALF,
        "--project": IgnoredFlag("plots are in runs/val of the current folder", None),
        "--verbose": IgnoredFlag("scores by class are always shown"),
        "--workers": IgnoredFlag("one thread per core loads images", None),
    },
    rejected={
        "--augment": _NO_TTA,
        "--dnn": _NO_OPENCV,
        "--max-det": "at most 300 boxes per image are scored, as in YOLOv5",
        "--save-conf": "`oomph detect` writes the confidence of each box",
        "--save-hybrid": "labels are used for scoring only",
        "--save-json": "`oomph detect --json` prints all boxes, and --json here all scores",
        "--save-txt": "`oomph detect` writes boxes as text",
        "--single-cls": "weights with one class are scored with all classes merged, other weights by class",
    },
)
_DRAWING = "the drawing of boxes can't be changed; --json has their values"
_IMAGES_ONLY = "only images are supported, not videos"
DETECT = ForeignFlags(
    ignored={
        "--data": IgnoredFlag("class names are in the weights", None),
        "--exist-ok": IgnoredFlag("only earlier outputs in --out are replaced"),
        "--half": _HALF,
        "--save-conf": IgnoredFlag("text files always contain the confidence"),
        "--save-txt": IgnoredFlag("text files are always written"),
    },
    rejected={
        "--augment": _NO_TTA,
        "--dnn": _NO_OPENCV,
        "--hide-conf": _DRAWING,
        "--hide-labels": _DRAWING,
        "--line-thickness": _DRAWING,
        "--name": "use --out for the output folder",
        "--nosave": "images with boxes are always written",
        "--project": "use --out for the output folder",
        "--save-crop": "whole images are written; --json has the corners for crops",
        "--save-csv": "--json has every box",
        "--save-format": "text files are in YOLO format; --json has pixels",
        "--update": "weights are read and never changed",
        "--vid-stride": _IMAGES_ONLY,
        "--view-img": "there is no window; the images are in the output folder",
        "--visualize": "feature maps can't be shown",
    },
)
_COMMANDS = {"train": TRAIN, "val": VAL, "detect": DETECT}


def translate_yolov5(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Remove ignored flags and convert YOLOv5's value lists; return the arguments and notes to print."""
    foreign = _COMMANDS.get(arguments[0]) if arguments else None
    if foreign is None:
        return list(arguments), []
    kept, notes, rest = [arguments[0]], [], list(arguments[1:])
    while rest:
        word = rest.pop(0)
        flag, equals, _ = word.partition("=")
        if (ignored := foreign.ignored.get(flag)) is not None:
            if not equals and rest and ignored.has_value(rest[0]):
                rest.pop(0)
            notes.append(f"{flag} is ignored: {ignored.note}")
            continue
        kept.append(word)
        if word in _IMAGE_SIZE_FLAGS:
            kept += _image_size(word, rest, notes)
        elif word == "--classes" and (numbers := _take_numbers(rest)):
            kept.append(",".join(numbers))
    return kept, notes


def _image_size(flag: str, rest: list[str], notes: list[str]) -> list[str]:
    """Return the larger of a height and a width: images keep their aspect ratio."""
    numbers = _take_numbers(rest)
    if not numbers:
        return []
    size = max(map(int, numbers))
    if len(numbers) > 1:
        notes.append(f"{flag} {' '.join(numbers)}: images keep their aspect ratio; the longer side becomes {size}")
    return [str(size)]


def _take_numbers(rest: list[str]) -> list[str]:
    """Remove the leading numbers from a list of words and return them."""
    numbers = []
    while rest and rest[0].replace(",", "").isdigit():
        numbers.append(rest.pop(0))
    return numbers


def unknown_flags(command: str, arguments: Sequence[str], known: Collection[str]) -> UsageError | None:
    """Return one error for all unknown flags of a command line; None for a single typo, which typer explains."""
    foreign = _COMMANDS.get(command, ForeignFlags())
    flags = dict.fromkeys(word.partition("=")[0] for word in arguments if word.startswith("--") and word != "--")
    unknown = [flag for flag in flags if flag not in known]
    settings = [flag for flag in unknown if flag in foreign.settings]
    rejected = [flag for flag in unknown if flag in foreign.rejected]
    others = [flag for flag in unknown if flag not in {*settings, *rejected}]
    if not settings and not rejected and len(others) <= 1:
        return None
    why = [f"YOLOv5's {flag} is not supported: {foreign.rejected[flag]}" for flag in rejected]
    fix = ["remove it" if len(rejected) == 1 else f"remove {_join(rejected)}"] if rejected else []
    if settings:
        kind = "is a setting, not a flag" if len(settings) == 1 else "are settings, not flags"
        why.append(f"{_join(settings)} {kind}")
        lines = [f"`{line}`" for line in dict.fromkeys(foreign.settings[flag] for flag in settings)]
        fix.append(f"write {'a line' if len(lines) == 1 else 'lines'} such as {_join(lines)} into a --settings file")
    if others:
        why.append(f"there is no {_join(others)}")
        fix.append(f"see `oomph {command} --help`")
    return UsageError("; ".join(why), "; ".join(fix))


def _join(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
