"""Rule `unknown-yolo-flag`: options of YOLOv5's scripts and arguments of Ultralytics that don't exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code
from ...sources import CommandLine, Document, Word
from ._names import is_placeholder, nearest, place_in_word, replacement
from ._yolo_options import (
    ARGUMENTS,
    METHOD_ARGUMENTS,
    MODES,
    REMOVED_OPTIONS,
    SAME_ARGUMENT,
    SAME_OPTION,
    SCRIPT_OPTIONS,
    TASKS,
    TRAIN_HINTS,
)

_SCRIPT = re.compile(
    r"(?:.*?[\\/])??((?:(?:segment|classify)[\\/])?(?:train|val|test|detect|export|predict|benchmarks)\.py)"
)
_SIGNS = ("--img", "--imgsz", "--img-size", "--hyp", "--cfg", "--weights", "--conf-thres")
_STRONG_SIGNS = {"--img", "--hyp", "--conf-thres"}
# Other detectors whose scripts have the same names and mostly the same options.
_RIVALS = re.compile(r"yolo[_-]?(?:v?[3467]|v?9|v?1[0-9]|r\b|x\b|p\b|-nas)|ppyolo|yolact|rtmdet|mmdet", re.IGNORECASE)
_PERSONAL = re.compile(r"yolo[_-]?v?5", re.IGNORECASE)
_OWN_FOLDER = re.compile(r"yolo|ultralytics", re.IGNORECASE)
_SUBFOLDERS = {"segment", "classify"}  # of YOLOv5
_MOVES = {"to", "cuda", "cpu", "half", "float", "load", "fuse"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLASSES = {
    "YOLO", "RTDETR", "YOLOWorld", "YOLOE", "NAS", "FastSAM", "SAM", "ultralytics.YOLO", "ultralytics.RTDETR",
    "ultralytics.YOLOWorld", "ultralytics.YOLOE", "ultralytics.models.YOLO", "ultralytics.models.yolo.model.YOLO",
}  # fmt: skip


def _check(document: Document) -> Iterator[Problem]:
    is_yolov5 = _PERSONAL.search(document.text) is not None
    is_other = not is_yolov5 and _RIVALS.search(document.text) is not None
    folder = ""
    for command in document.commands:
        folder = "" if command.is_string else folder
        for words in command.commands:
            folder = _folder_after(words, folder)
            yield from _check_yolo(command, words)
            if not is_other:
                yield from _check_script(command, words, folder, is_yolov5=is_yolov5)
    if "YOLO" in document.text or "ultralytics" in document.text:
        yield from _check_calls(document.code)


# YOLOv5: `python train.py --img 640 …`.


def _folder_after(words: Sequence[Word], folder: str) -> str:
    """Return the working folder behind a command: that of a `cd`, otherwise the one before it."""
    is_change = len(words) > 1 and words[0].text == "cd"
    return words[1].text if is_change else folder


def _is_other_project(folder: str) -> bool:
    """Return True if a folder is named, and not for YOLO: `detr/`, `../ssd`. An absolute one may hold anything."""
    if is_placeholder(folder) or folder.startswith(("/", "\\")) or ":" in folder:
        return False
    parts = [part for part in re.split(r"[\\/]", folder) if part not in {"", ".", "~", *_SUBFOLDERS}]
    return bool(parts) and parts[-1] not in {"..", "-"} and not _OWN_FOLDER.search(parts[-1])


def _check_script(command: CommandLine, words: Sequence[Word], folder: str, *, is_yolov5: bool) -> Iterator[Problem]:
    for number, word in enumerate(words):
        match = _SCRIPT.fullmatch(word.text)
        if match is None or number == 0:
            continue
        arguments = words[number + 1 :]
        name = match[1].replace("\\", "/")
        options = SCRIPT_OPTIONS.get(name)
        place = word.text[: match.start(1)] or folder
        if options is not None and _is_yolov5(word.text, arguments, place, is_yolov5=is_yolov5):
            for argument in arguments:
                is_old = argument.text.partition("=")[0] in REMOVED_OPTIONS
                if is_yolov5 or not is_old:
                    yield from _check_option(command, argument, name, options)
        return


def _is_yolov5(script: str, arguments: Sequence[Word], folder: str, *, is_yolov5: bool) -> bool:
    """Return True if a script is YOLOv5's: by its folder, its options and what they name, not by its name alone."""
    text = " ".join([script, *(argument.text for argument in arguments)])
    if _PERSONAL.search(text):
        return True
    if _RIVALS.search(text) or _is_other_project(folder):
        return False
    names = {argument.text.partition("=")[0] for argument in arguments}
    signs = sum(sign in names for sign in _SIGNS) + bool(re.search(r"--data[= ]\S+\.ya?ml", text))
    needed = 2 if names & _STRONG_SIGNS else 3
    return signs >= (1 if is_yolov5 else needed)


def _check_option(command: CommandLine, word: Word, script: str, options: frozenset[str]) -> Iterator[Problem]:
    name = word.text.partition("=")[0]
    if not name.startswith("--") or name == "--" or is_placeholder(name):
        return
    # argparse takes the beginning of an option for the option.
    if any(option.startswith(name) for option in options):
        return
    span, _ = place_in_word(command, word, name)
    is_training = script.endswith("train.py")
    hint = TRAIN_HINTS.get(name) if is_training else None
    same = SAME_OPTION.get(name) if hint is None else None
    same = same if same in options else None
    if name in REMOVED_OPTIONS:
        other = REMOVED_OPTIONS[name]
        advice = f"write {other}" if other else "remove it"
    elif hint is not None:
        advice = f"remove it, {hint}"
    else:
        other = same or nearest(name, options, 0.8) or ""
        advice = f"write {other}" if other else f"see python {script} --help"
    message = f"YOLOv5's {script} has no option `{name}` and stops with an error: {advice}"
    yield Problem(span, message, replacement(span, command, same) if same else ())


# Ultralytics: `yolo detect train data=… imgsz=640`.


def _check_yolo(command: CommandLine, words: Sequence[Word]) -> Iterator[Problem]:
    start = next((number for number, word in enumerate(words) if word.text in {"yolo", "ultralytics"}), None)
    if start is None:
        return
    arguments = words[start + 1 :]
    plain = [word.text for word in arguments if "=" not in word.text]
    mode = next((text for text in plain if text in MODES), None)
    is_explicit = any(word.text.startswith("mode=") for word in arguments)
    has_mode = mode is not None and "solutions" not in plain and bool(set(plain[:2]) & (MODES | TASKS))
    if not has_mode and not is_explicit:
        return
    names = {word.text.lstrip("-").partition("=")[0] for word in arguments}
    for word in arguments:
        name, equals, _ = word.text.lstrip("-").partition("=")
        if equals and _NAME.fullmatch(name) and not _is_argument(name, mode or ""):
            span, _ = place_in_word(command, word, name)
            same = _same_argument(name, names)
            yield Problem(span, _argument_message(name, same), replacement(span, command, same) if same else ())


def _is_argument(name: str, method: str) -> bool:
    return name in ARGUMENTS or name in METHOD_ARGUMENTS.get(method, frozenset())


def _same_argument(name: str, names: set[str]) -> str | None:
    """Return the argument that a name stands for, unless it is given as well."""
    same = SAME_ARGUMENT.get(name.lower())
    return same if same not in names else None


def _argument_message(name: str, same: str | None) -> str:
    other = same or SAME_ARGUMENT.get(name.lower()) or nearest(name, ARGUMENTS)
    if name.lower() in {"accumulate", "accumulation", "gradient_accumulation", "accumulation_steps", "accum"}:
        advice = "it accumulates to the nominal batch nbs=64 by itself"
    elif name.lower() == "fp16":
        advice = "training uses mixed precision by amp=True, prediction and export take half=True"
    else:
        advice = f"write {other}" if other else "see the settings in its documentation"
    return f"Ultralytics has no argument `{name}` and stops with an error: {advice}"


def _check_calls(code: Code) -> Iterator[Problem]:
    """Check `YOLO(…).train(imgsz=640)`, also by a variable."""
    for call in code.nodes(ast.Call):
        method = _method(code, call)
        if method is None:
            continue
        keywords = {keyword.arg for keyword in call.keywords if keyword.arg}
        for keyword in call.keywords:
            if keyword.arg is None:
                yield from _check_expanded(code, keyword.value, method)
            elif not _is_argument(keyword.arg, method):
                same = _same_argument(keyword.arg, keywords)
                span = code.span(keyword)
                edits: tuple[Edit, ...] = ()
                if same:
                    width = len(keyword.arg)
                    start = type(span)(span.cell, span.line, span.column, span.line, span.column + width)
                    edits = (Edit(start, same),)
                yield Problem(span, _argument_message(keyword.arg, same), edits)


def _method(code: Code, call: ast.Call) -> str | None:
    """Return the method of a model of Ultralytics that a call runs; None for another call."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in METHOD_ARGUMENTS:
        return function.attr if _is_model(code, function.value) else None
    if isinstance(function, ast.Name) and _is_model(code, function):
        return "predict"
    return None


def _is_model(code: Code, node: ast.expr) -> bool:
    values = [_without_moves(value) for value in code.values(node)]
    return bool(values) and all(isinstance(value, ast.Call) and code.call_name(value) in _CLASSES for value in values)


def _without_moves(node: ast.expr) -> ast.expr:
    """Return the model in `YOLO(…).to("cuda")`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        node = node.func.value
    return node


def _check_expanded(code: Code, node: ast.expr, method: str) -> Iterator[Problem]:
    """Check the keys of `**settings`, where the code shows the dict."""
    values = code.values(node)
    value = values[0] if len(values) == 1 else None
    if isinstance(value, ast.Call) and code.call_name(value) == "dict":
        for keyword in value.keywords:
            if keyword.arg and not _is_argument(keyword.arg, method):
                yield Problem(code.span(keyword), _argument_message(keyword.arg, None))
    for key in value.keys if isinstance(value, ast.Dict) else ():
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and not _is_argument(key.value, method):
            yield Problem(code.span(key), _argument_message(key.value, _same_argument(key.value, set())))


UNKNOWN_YOLO_FLAG = Rule(
    "unknown-yolo-flag",
    RuleFamily.COMMANDS,
    "An option that YOLOv5 or Ultralytics doesn't have",
    _check,
    triggers=("yolo", "YOLO", "train.py", "val.py", "detect.py", "export.py"),
    is_fixable=True,
)
