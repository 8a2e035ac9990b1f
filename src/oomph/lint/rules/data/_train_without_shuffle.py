"""Rule `train-without-shuffle`: a training loader that gives the samples in the same order every epoch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, DataLoaderCall, getitem_of, last_part
from ...sources import Document, DocumentKind

_TRAIN = re.compile(r"(?:^|_|\.|\b)(?:train(?:ing|ed|s)?|trn|tr)(?=$|_|\.|\b|\d|loader|set|data|dl|ds)", re.IGNORECASE)
_NOT_TRAIN_PARTS = (
    r"val(?:id|$|_|\d)|test|eval|infer|pred|feature|embed|calib|stat|memory|bank|knn|order|seq(?:uential)?_|stream|iter(?:$|_|able|ator)|datapipe",
    r"|webdataset|wds|fake|dummy|synth|random|toy|warm|debug|overfit|attribution|cache|unshuffled|plain",
)
_NOT_TRAIN = re.compile(
    "".join(_NOT_TRAIN_PARTS),
    re.IGNORECASE,
)
_ORDERING = {"sampler", "batch_sampler"}
_UNUSED_INDEX = {"_", "__"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for loader in document.loaders.all:
        if not loader.is_complete or _ORDERING & loader.settings.keys():
            continue
        if not (_is_for_training(code, loader) or _is_trained_on(document, loader)):
            continue
        shuffle = loader.settings.get("shuffle")
        if shuffle is not None and code.constant(shuffle) is not False:
            continue
        uses = _uses(document, loader)
        trains = any(uses.values())
        # A written shuffle=False is on purpose where a program's loop is elsewhere; an answer shows all it has.
        is_deliberate = shuffle is not None and not trains and document.kind is DocumentKind.PYTHON
        if (uses and not trains) or is_deliberate or _has_random_order(document, loader):
            continue
        message = (
            f"this training loader {'has shuffle=False' if shuffle is not None else 'has no shuffle=True'}, so that "
            "every epoch has the same batches in the order of the files: pass shuffle=True or a sampler"
        )
        yield Problem(code.span(loader.call), message)


def _is_for_training(code: Code, loader: DataLoaderCall) -> bool:
    """Return True if the name of the loader, or what the dataset is built from, says that it is for training."""
    # A loader may be called train_iter; a dataset of that name is iterable.
    name = re.sub(r"_iter$", "", loader.name or "")
    if _NOT_TRAIN.search(name):
        return False
    dataset = ast.unparse(loader.dataset) if loader.dataset is not None else ""
    if _NOT_TRAIN.search(dataset) or (loader.dataset is not None and code.call_name(loader.dataset).endswith("Subset")):
        return False
    if _TRAIN.search(last_part(name)) or _TRAIN.search(name):
        return True
    is_name = isinstance(loader.dataset, (ast.Name, ast.Attribute, ast.Subscript))
    return (is_name and _TRAIN.search(dataset) is not None) or _is_train_split(code, loader.dataset)


def _is_trained_on(document: Document, loader: DataLoaderCall) -> bool:
    """Return True if all loops over a loader run backward, and no name says that it is for something else."""
    dataset = ast.unparse(loader.dataset) if loader.dataset is not None else ""
    uses = _uses(document, loader)
    return bool(uses) and all(uses.values()) and not _NOT_TRAIN.search(f"{loader.name or ''} {dataset}")


def _is_train_split(code: Code, dataset: ast.expr | None) -> bool:
    """Return True for `Images(root, train=True)` and `Images("train")`."""
    if not isinstance(dataset, ast.Call):
        return False
    if _TRAIN.match(last_part(code.call_name(dataset))):
        return True
    for argument in dataset.args:
        if isinstance(value := code.constant(argument), str) and re.search(r"(?:^|/)train(?:$|/|ing)", value):
            return True
    for keyword in dataset.keywords:
        value = code.constant(keyword.value)
        if (keyword.arg, value) in {("train", True), ("split", "train"), ("mode", "train"), ("is_train", True)}:
            return True
    return False


def _uses(document: Document, loader: DataLoaderCall) -> dict[ast.For, bool]:
    """Return the loops over a loader, each with True if it trains."""
    nodes = {loop.node for loop in document.loops} | {loop.update for loop in document.loops}
    uses: dict[ast.For, bool] = {}
    for loop in document.code.nodes(ast.For):
        if loader in document.loaders.in_loop(loop):
            inside = loop in nodes or any(document.code.is_inside(node, loop) for node in nodes)
            uses[loop] = inside or _calls_training(document, loop)
    return uses


def _calls_training(document: Document, loop: ast.For) -> bool:
    """Return True if a loop calls a function of the document that runs backward."""
    regions = {document.code.function(item.node) or item.node for item in document.loops}
    return any(
        isinstance(node, ast.Call) and document.calls.function(node) in regions
        for statement in loop.body
        for node in ast.walk(statement)
    ) or any(
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in {"train_step", "training_step", "train_on_batch"}
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _has_random_order(document: Document, loader: DataLoaderCall) -> bool:
    """Return True if the dataset itself decides the order: iterable, shuffled before, or random samples."""
    code = document.code
    if loader.dataset is None:
        return True
    for value in (loader.dataset, *code.values(loader.dataset)):
        text = ast.unparse(value)
        if _NOT_TRAIN.search(last_part(code.call_name(value))):
            return True
        if re.search(r"shuffle|streaming=True|rand(?:n|int|perm)?\(|Iterable|\.permutation|WebDataset|Subset\(", text):
            return True
        if (owner := _class_of(document, value)) is not None and _ignores_order(code, owner):
            return True
    name = code.name(loader.dataset)
    is_shuffled = name is not None and re.search(
        rf"(?:shuffle\({re.escape(name)}|{re.escape(name)}\.(?:shuffle|set_epoch))", document.text
    )
    unpacked = [item for item in code.assignments(name, loader.dataset) if item.value is None] if name else []
    is_split = any(
        "random_split" in ast.unparse(item.statement) for item in unpacked if isinstance(item.statement, ast.Assign)
    )
    return bool(is_shuffled) and not is_split


def _class_of(document: Document, value: ast.expr) -> ast.ClassDef | None:
    name = last_part(document.code.call_name(value))
    return next((owner for owner in document.code.nodes(ast.ClassDef) if owner.name == name), None)


def _ignores_order(code: Code, owner: ast.ClassDef) -> bool:
    """Return True if a dataset is iterable, or its samples don't depend on the index."""
    if any("Iterable" in code.resolve(base) for base in owner.bases):
        return True
    method = getitem_of(owner)
    if method is None:
        return any(isinstance(item, ast.FunctionDef) and item.name == "__iter__" for item in owner.body)
    arguments = [argument.arg for argument in method.args.args][1:2]
    if not arguments:
        return True
    is_used = any(
        isinstance(node, ast.Name) and node.id == arguments[0] for item in method.body for node in ast.walk(item)
    )
    has_text = any("shuffle" in ast.unparse(item) for item in owner.body)
    return not is_used or has_text


TRAIN_WITHOUT_SHUFFLE = Rule(
    "train-without-shuffle",
    RuleFamily.DATA,
    "A training loader doesn't shuffle",
    _check,
    triggers=("DataLoader",),
)
