"""Rule `ragged-default-collate`: samples of different sizes, and a loader that stacks them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import (
    Code,
    DataLoaderCall,
    Function,
    called_name,
    dataset_classes,
    getitem_of,
    integer,
    last_part,
    walk,
)
from ...sources import Document

_TENSORS = {
    "tensor", "as_tensor", "array", "asarray", "stack", "FloatTensor", "LongTensor", "from_numpy", "Tensor", "cat",
    "vstack", "BoundingBoxes", "float", "long", "to", "astype", "int", "clone",
}  # fmt: skip
# What a loop goes over when it collects the objects of one image.
_OBJECTS = re.compile(
    r"ann(?:s|o|otation|_|\b)|obj|box|findall|iter\(['\"]object|instance|region|shape|label|target|line|row|split|\btok",
    re.IGNORECASE,
)
_BOXES = re.compile(r"(?:^|_|\b|['\"])(?:b?boxes|polygons|keypoints_list|objects)(?:$|_|\b|['\"])", re.IGNORECASE)
_SEQUENCES = re.compile(r"seq|token|sentence|text|wave|audio|series|utterance|ids|signal|track", re.IGNORECASE)
_DIFFERENT_LENGTHS_PARTS = (
    r"(?:different|differing|variable|varying|unequal|various|ragged|own)[\s-]+(?:sequence\s+)?",
    r"(?:lengths?|sizes?|numbers? of)",
    r"|lengths?\s+(?:differ|var(?:y|ies))|variable[\s-]length|not (?:all )?(?:the )?same length",
)
_DIFFERENT_LENGTHS = re.compile(
    "".join(_DIFFERENT_LENGTHS_PARTS),
    re.IGNORECASE,
)
_TOKENIZER = re.compile(r"(?:^|_)tok(?:enizer)?$", re.IGNORECASE)
_AUDIO = re.compile(r"(?:torchaudio|librosa|soundfile|sf)\.(?:load|read)\(")
# One row per object of the image, selected from a table.
_ROWS = re.compile(r"\.values\b|to_numpy\(|loadtxt|json\.load")
_DETECTION_SETS = {"CocoDetection", "VOCDetection", "Kitti", "WIDERFace"}
_PHOTO_SETS = {
    "ImageFolder",
    "Food101",
    "Flowers102",
    "OxfordIIITPet",
    "ImageNet",
    "Caltech101",
    "Caltech256",
    "Places365",
}
_LIBRARY_ADVICE = "resize to (height, width) or crop, or pass a collate_fn that keeps lists or pads"
_PADDED = re.compile(
    r"pad|max_?(?:len|boxes|obj|seq|length|targets)|truncat|crop_or|fixed|window|chunk|block_size", re.IGNORECASE
)


_TRUNCATION = re.compile(r"truncat\w*|max_?(?:len|seq_?len|length)\w*", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    classes = dataset_classes(code)
    ragged = {owner.name: leaf for owner in classes if (leaf := _ragged_part(document, owner)) is not None}
    for loader in document.loaders.all:
        if not loader.is_complete or {"collate_fn", "batch_sampler"} & loader.settings.keys():
            continue
        batch = loader.settings.get("batch_size")
        if (
            batch is None
            or integer(code, batch) == 1
            or (code.constant(batch) is None and isinstance(batch, ast.Constant))
        ):
            continue
        name = _dataset_class(document, loader, {owner.name for owner in classes})
        if name in ragged:
            message = (
                f"{name}'s `{code.source(ragged[name])}` has another length in every sample, which the default "
                "collate_fn can't stack: pass a collate_fn that keeps lists or pads"
            )
            yield Problem(code.span(loader.call), message)
        elif (reason := _library_reason(code, loader)) is not None:
            message = f"{reason}, which the default collate_fn can't stack: {_LIBRARY_ADVICE}"
            yield Problem(code.span(loader.call), message)


def _library_reason(code: Code, loader: DataLoaderCall) -> str | None:
    """Return why the samples of a dataset of torchvision differ in size; None if they may be equal."""
    values = [loader.dataset, *code.values(loader.dataset)] if loader.dataset is not None else []
    for value in values:
        name = last_part(code.call_name(value))
        if not isinstance(value, ast.Call) or not name:
            continue
        if name in _DETECTION_SETS:
            return f"{name} gives each image its own number of objects"
        if name in _PHOTO_SETS and (resize := _one_sided_resize(code, value)) is not None:
            return f"`{code.source(resize)}` keeps the aspect ratio, so that images differ in size"
    return None


def _one_sided_resize(code: Code, dataset: ast.Call) -> ast.Call | None:
    """Return the resize of the shorter side that no crop follows, in the transforms of a dataset."""
    given = [item.value for item in dataset.keywords if item.arg == "transform"] or dataset.args[1:2]
    for transform in given:
        for value in (transform, *code.values(transform)):
            if not isinstance(value, ast.Call) or last_part(code.call_name(value)) != "Compose" or not value.args:
                continue
            steps = value.args[0].elts if isinstance(value.args[0], ast.List) else []
            names = [last_part(code.call_name(step)) for step in steps]
            # A step without a name may crop.
            if not all(names) or any(re.search("Crop|Pad|Lambda|Perspective", name) for name in names):
                return None
            resizes = [step for step in steps if last_part(code.call_name(step)) == "Resize"]
            if len(resizes) == 1 and isinstance(resizes[0], ast.Call) and len(resizes[0].args) == 1:
                return resizes[0] if integer(code, resizes[0].args[0]) is not None else None
    return None


def _dataset_class(document: Document, loader: DataLoaderCall, names: set[str]) -> str | None:
    """Return the class of a loader's dataset; the only one of the document if the dataset is unknown."""
    code = document.code
    if loader.dataset is None:
        return None
    for value in (loader.dataset, *code.values(loader.dataset)):
        if isinstance(value, ast.Call):
            name = last_part(code.call_name(value))
            if name in names:
                return name
            inner = [last_part(code.call_name(item)) for part in value.args for item in (part, *code.values(part))]
            if name in {"Subset", "ConcatDataset"}:
                return next((item for item in inner if item in names), None)
            return None
    unpacked = [item.statement for item in code.assignments(code.name(loader.dataset) or "", loader.dataset)]
    text = " ".join(ast.unparse(item) for item in unpacked if isinstance(item, ast.Assign))
    is_unknown = not unpacked or "random_split" in text or any(isinstance(item, ast.FunctionDef) for item in unpacked)
    return next(iter(names)) if is_unknown and len(names) == 1 else None


def _ragged_part(document: Document, owner: ast.ClassDef) -> ast.expr | None:
    """Return the part of a sample whose length differs from sample to sample."""
    method = getitem_of(owner)
    code = document.code
    if method is None or _pads_by_itself(code) or (_PADDED.search(ast.unparse(owner)) and not _only_truncates(owner)):
        return None
    states_lengths = _DIFFERENT_LENGTHS.search(document.text) is not None
    for node in walk(method):
        if isinstance(node, ast.Return) and node.value is not None:
            for leaf in _leaves(code, node.value, method):
                if _is_ragged(code, leaf, method, set()):
                    return leaf
                if states_lengths and _is_sequence(code, leaf):
                    return leaf
    return None


def _pads_by_itself(code: Code) -> bool:
    """Return True if texts go to a tokenizer of CLIP, which pads all of them to the same length."""
    return any(name.partition(".")[0] in {"clip", "open_clip"} for name in code.aliases.values())


def _only_truncates(owner: ast.ClassDef) -> bool:
    """Return True if a tokenizer cuts long texts and nothing fills up the short ones."""
    text = _TRUNCATION.sub("", ast.unparse(owner))
    calls = (called_name(node) for node in ast.walk(owner) if isinstance(node, ast.Call))
    has_tokenizer = any(name in {"encode", "tokenize"} or _TOKENIZER.search(name) for name in calls)
    return has_tokenizer and not _PADDED.search(text) and "- len(" not in text


def _leaves(code: Code, node: ast.expr, method: Function) -> Iterator[ast.expr]:
    """Yield the parts of a sample: elements of a tuple, values of a dict, also of one that is filled step by step."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from _leaves(code, element, method)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _leaves(code, value, method)
    elif isinstance(node, ast.Call) and code.call_name(node) == "dict":
        for keyword in node.keywords:
            yield from _leaves(code, keyword.value, method)
    elif isinstance(node, ast.Name):
        yield from _leaves_of_name(code, node, method)
    else:
        yield node


def _leaves_of_name(code: Code, node: ast.Name, method: Function) -> Iterator[ast.expr]:
    values = [value for value in code.values(node) if isinstance(value, (ast.Dict, ast.Tuple))]
    is_dict = any(isinstance(value, ast.Dict) for value in values)
    for value in values:
        yield from _leaves(code, value, method)
    for statement in walk(method) if is_dict else ():
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Subscript) and code.name(target.value) == node.id:
            yield statement.value  # type: ignore[attr-defined]
    if not values:
        yield node


def _is_ragged(code: Code, node: ast.expr, method: Function, seen: set[ast.expr]) -> bool:
    """Return True if the code shows that a value has one row per object of the image."""
    if node in seen:
        return False
    seen.add(node)
    if isinstance(node, ast.ListComp):
        return any(_goes_over_objects(code, generator.iter, generator.target) for generator in node.generators)
    if isinstance(node, ast.Name):
        values = code.values(node)
        is_table = _BOXES.search(node.id) and any(_ROWS.search(ast.unparse(value)) for value in values)
        return (
            bool(is_table)
            or _is_unpacked_box(code, node)
            or _is_filled_per_object(code, node, method)
            or any(_is_ragged(code, value, method, seen) for value in values)
        )
    if isinstance(node, ast.Subscript):
        return _is_ragged_item(code, node, method, seen)
    if isinstance(node, ast.Attribute):
        return _BOXES.search(node.attr) is not None and _is_of_sample(code, node.value)
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    last = called_name(node)
    if last in {"encode", "tokenize"} or _TOKENIZER.search(last):
        return True  # texts have different lengths; padding is looked for in the whole class
    if last == "reshape" and node.args and code.constant(node.args[0]) == -1 and len(node.args) > 1:
        return True
    is_method = isinstance(func, ast.Attribute) and last in _TENSORS | {"reshape", "view"}
    if is_method and _is_ragged(code, func.value, method, seen):  # type: ignore[attr-defined]
        return True
    return last in _TENSORS and any(_is_ragged(code, argument, method, seen) for argument in node.args[:1])


def _is_unpacked_box(code: Code, node: ast.Name) -> bool:
    """Return True for `boxes` of `path, boxes, labels = self.records[i]`."""
    if not _BOXES.search(node.id):
        return False
    statements = [item.statement for item in code.assignments(node.id, node) if item.value is None]
    return any(isinstance(item, ast.Assign) and _is_of_sample(code, item.value) for item in statements)


def _is_of_sample(code: Code, node: ast.expr) -> bool:
    """Return True for `self.items[i]`, also by a name that holds it."""
    return any(
        isinstance(value, ast.Subscript) and ast.unparse(value).startswith("self.")
        for value in (node, *code.values(node))
    )


def _is_ragged_item(code: Code, node: ast.Subscript, method: Function, seen: set[ast.expr]) -> bool:
    """Return True for `self.boxes[i]` and `ann["boxes"]`; for columns of a ragged array."""
    text = ast.unparse(node)
    is_per_sample = text.startswith("self.") or isinstance(node.slice, ast.Constant)
    if is_per_sample and _BOXES.search(text) and not re.search(r"\[0\]", text):
        return True
    # The ids of a tokenizer's result: `tokenizer(text)["input_ids"][0]`.
    if isinstance(node.slice, ast.Constant) and isinstance(node.value, (ast.Call, ast.Subscript, ast.Name)):
        inner: ast.expr = node.value
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        calls = [inner, *code.values(inner)]
        if any(isinstance(call, ast.Call) and _TOKENIZER.search(called_name(call)) for call in calls):
            return True
    if isinstance(node.slice, ast.Slice) and _keeps_length(code, node.slice):
        return _is_ragged(code, node.value, method, seen)
    is_column = isinstance(node.slice, ast.Tuple) and isinstance(node.slice.elts[0], ast.Slice)
    return is_column and _is_ragged(code, node.value, method, seen)


def _keeps_length(code: Code, part: ast.Slice) -> bool:
    """Return True for `ids[1:]` and `ids[:-1]`, which are as long as the sample is; `ids[:512]` may not be."""
    upper = code.constant(part.upper)
    return part.upper is None or (isinstance(upper, int) and upper < 0)


def _goes_over_objects(code: Code, iterable: ast.expr, target: ast.expr) -> bool:
    texts = [ast.unparse(value) for value in (target, iterable, *code.values(iterable))]
    return not any("range(" in text for text in texts) and any(_OBJECTS.search(text) for text in texts)


def _is_filled_per_object(code: Code, node: ast.Name, method: Function) -> bool:
    for call in walk(method):
        func = call.func if isinstance(call, ast.Call) else None
        if not (
            isinstance(func, ast.Attribute) and func.attr in {"append", "extend"} and code.name(func.value) == node.id
        ):
            continue
        loops = [loop for loop in code.loops_around(call) if isinstance(loop, ast.For)]
        if any(_goes_over_objects(code, loop.iter, loop.target) for loop in loops):
            return True
    return False


def _is_sequence(code: Code, node: ast.expr) -> bool:
    """Return True if a value is a stored sequence as it is: `torch.tensor(self.sequences[i])`."""
    if isinstance(node, ast.Name):
        unpacked = [item.statement for item in code.assignments(node.id, node) if item.value is None]
        if any(isinstance(item, ast.Assign) and _AUDIO.search(ast.unparse(item.value)) for item in unpacked):
            return True
        return any(_is_sequence(code, value) for value in code.values(node) if not isinstance(value, ast.Name))
    if isinstance(node, ast.Call):
        func = node.func
        last = called_name(node)
        if last in _TENSORS and node.args:
            return _is_sequence(code, node.args[0])
        return isinstance(func, ast.Attribute) and last in _TENSORS and _is_sequence(code, func.value)
    text = ast.unparse(node)
    return isinstance(node, ast.Subscript) and text.startswith("self.") and _SEQUENCES.search(text) is not None


RAGGED_DEFAULT_COLLATE = Rule(
    "ragged-default-collate",
    RuleFamily.DATA,
    "Samples of different sizes are stacked by the default collate_fn",
    _check,
    triggers=("__getitem__", *sorted(_DETECTION_SETS | _PHOTO_SETS)),
)
