"""YOLOv5's own flags: which are understood though nothing is to be done, and why the others are not here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..errors import UsageError

_SIDES = ("--img", "--imgsz", "--img-size")


@dataclass(frozen=True)
class Told:
    """A flag that is taken, and changes nothing.

    Attributes:
        words: what happens instead.
        values: what may follow it; anything if None.
    """

    words: str
    values: Collection[str] | None = ()

    def has(self, value: str) -> bool:
        """Whether a word is the flag's value."""
        return not value.startswith("-") if self.values is None else value in self.values


@dataclass(frozen=True)
class Foreign:
    """The flags of one of YOLOv5's commands that are none here.

    Attributes:
        told: those that are taken, with what happens instead.
        settings: those that are lines of the settings file.
        refused: the others, with the reason.
    """

    told: dict[str, Told] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


_CACHE = Told("copies of decoded images are kept in memory by themselves where there is room", ("ram", "disk", "val"))
_NEVER_OVER = Told("nothing is ever overwritten; a second folder of a name gets a number")
_RANK = Told("torchrun says which rank this is", None)
_HALF = Told("boxes are computed in full precision")
_UNLOGGED, _NOT_UPLOADED = "nothing is logged to a service", "nothing is uploaded"
_WITHOUT_OPENCV = "networks are run by torch"
_ONCE = "images are looked at once, as they are"

TRAIN = Foreign(
    told={
        "--cache": _CACHE,
        "--cache-images": _CACHE,
        "--exist-ok": _NEVER_OVER,
        "--local-rank": _RANK,
        "--local_rank": _RANK,
        "--noplots": Told("plots are drawn all the same, and cost next to nothing"),
        "--nosave": Told("checkpoints are written all the same: --resume goes on from them"),
    },
    settings={
        "--adam": "optimizer: AdamW",
        "--cos-lr": "cosine: true",
        "--freeze": "freeze: 10",
        "--label-smoothing": "label_smoothing: 0.1",
        "--noval": "every: 1000",
        "--optimizer": "optimizer: AdamW",
        "--patience": "patience: 50",
        "--seed": "seed: 1",
        "--single-cls": "single_class: true",
    },
    refused={
        "--artifact_alias": _UNLOGGED,
        "--bbox_interval": _UNLOGGED,
        "--bucket": _NOT_UPLOADED,
        "--entity": _UNLOGGED,
        "--evolve": "there is no search over hyperparameters",
        "--image-weights": "every image is seen once an epoch",
        "--linear-lr": "the learning rate falls in a straight line unless the settings say `cosine: true`",
        "--multi-scale": "images keep their size, so that the memory that was planned is the memory that is used",
        "--noautoanchor": "anchors are fitted only where they match fewer than 98 % of the boxes",
        "--project": "runs are in runs/train; change into another folder first",
        "--quad": "batches are what they are called",
        "--rect": "validation is always rectangular, training never",
        "--save-period": "best.pt and last.pt are kept; `minutes: 10` in the settings says how often the state is",
        "--sync-bn": "each rank takes the statistics of its own images, so that a rank that runs short can try again",
        "--upload_dataset": _NOT_UPLOADED,
    },
)
_UNWRITTEN = Told("nothing is written, so no folder is needed", None)
VAL = Foreign(
    told={
        "--exist-ok": Told("nothing is written, so no folder is needed"),
        "--half": _HALF,
        "--name": _UNWRITTEN,
        "--project": _UNWRITTEN,
        "--verbose": Told("scores by class are always told"),
        "--workers": Told("as many threads load images as there are cores", None),
    },
    refused={
        "--augment": _ONCE,
        "--dnn": _WITHOUT_OPENCV,
        "--max-det": "300 boxes of an image are scored at most, as in YOLOv5's own figures",
        "--save-conf": "`oomph detect` writes how sure each box is",
        "--save-hybrid": "labels are what boxes are compared with, never shown to the detector",
        "--save-json": "`oomph detect --json` tells all boxes, and --json here all scores",
        "--save-txt": "`oomph detect` writes boxes as text",
        "--single-cls": "weights that know one class are scored with all classes taken for one, others by class",
    },
)
_DRAWN = "boxes are drawn in one way; --json has their figures"
_IMAGES_ONLY = "only images are looked at, no videos"
DETECT = Foreign(
    told={
        "--data": Told("the names of the classes are in the weights", None),
        "--exist-ok": Told("only earlier results of the same image in --out are replaced"),
        "--half": _HALF,
        "--save-conf": Told("text files always say how sure each box is"),
        "--save-txt": Told("text files are always written"),
    },
    refused={
        "--augment": _ONCE,
        "--dnn": _WITHOUT_OPENCV,
        "--hide-conf": _DRAWN,
        "--hide-labels": _DRAWN,
        "--line-thickness": _DRAWN,
        "--name": "name the folder of the results with --out",
        "--nosave": "pictures are what is asked for; --json alone needs a folder too",
        "--project": "name the folder of the results with --out",
        "--save-crop": "whole pictures are written; --json has the corners to cut by",
        "--save-csv": "--json has every box",
        "--save-format": "text files have YOLO's format; --json has pixels",
        "--update": "weights are read and never changed",
        "--vid-stride": _IMAGES_ONLY,
        "--view-img": "there is no window; the pictures are in the folder that is told",
        "--visualize": "layers can't be looked into",
    },
)
_COMMANDS = {"train": TRAIN, "val": VAL, "detect": DETECT}


def translated(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments as they are understood here, and what is to be told of those that were changed."""
    foreign = _COMMANDS.get(arguments[0]) if arguments else None
    if foreign is None:
        return list(arguments), []
    kept, words, rest = [arguments[0]], [], list(arguments[1:])
    while rest:
        flag, equals, _ = rest[0].partition("=")
        taken = rest.pop(0)
        if (told := foreign.told.get(flag)) is not None:
            if not equals and rest and told.has(rest[0]):
                rest.pop(0)
            words.append(f"{flag}: {told.words}")
            continue
        kept.append(taken)
        if taken in _SIDES:
            kept += _one_side(taken, rest, words)
        elif taken == "--classes":
            kept += [",".join(_numbers(rest))]
    return kept, words


def _one_side(flag: str, rest: list[str], words: list[str]) -> list[str]:
    """Of a height and a width, the larger one: images keep their shape."""
    found = _numbers(rest)
    if len(found) > 1:
        words.append(
            f"{flag} {' '.join(found)}: images keep their shape, and the longer side gets {max(map(int, found))}"
        )
    return [str(max(map(int, found)))] if found else []


def _numbers(rest: list[str]) -> list[str]:
    """The numbers that come next, which are taken out."""
    found = []
    while rest and rest[0].replace(",", "").isdigit():
        found.append(rest.pop(0))
    return found


def unknown_flags(command: str, arguments: Sequence[str], known: Collection[str]) -> UsageError | None:
    """Everything that is wrong with the flags of a line, in one sentence."""
    foreign = _COMMANDS.get(command, Foreign())
    flags = dict.fromkeys(one.partition("=")[0] for one in arguments if one.startswith("--") and one != "--")
    wrong = [flag for flag in flags if flag not in known]
    lines = [foreign.settings[flag] for flag in wrong if flag in foreign.settings]
    listed = [flag for flag in wrong if flag in foreign.settings]
    refused = [flag for flag in wrong if flag in foreign.refused]
    others = [flag for flag in wrong if flag not in {*listed, *refused}]
    if not listed and not refused and len(others) < 2:  # noqa: PLR2004  of one, typer knows what may be meant
        return None
    why = [f"{flag} is YOLOv5's and not here: {foreign.refused[flag]}" for flag in refused]
    fix = ["leave it out" if len(refused) == 1 else f"leave {_and(refused)} out"] if refused else []
    if listed:
        why.append(f"{_and(listed)} {'is no flag' if len(listed) == 1 else 'are no flags'} here")
        such = "a line such as" if len(listed) == 1 else "lines such as"
        fix.append(f"write {such} {_and([f'`{line}`' for line in dict.fromkeys(lines)])} into a --settings file")
    if others:
        why.append(f"there is no {_and(others)}")
        fix.append(f"`oomph {command} --help` shows what there is")
    return UsageError("; ".join(why), "; ".join(fix))


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
