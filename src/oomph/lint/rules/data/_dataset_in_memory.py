"""Rule `dataset-in-memory`: the whole data set is decoded into RAM before training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Function, dataset_classes, last_part, method_of, walk
from ...sources import Document
from ._sample_code import short_source

# Functions that load one sample or batch at a time.
_PER_BATCH = re.compile(r"^(?:__getitem__|__iter__|__next__|forward)$|collate|batch|generator")
_OPTION = re.compile(r"cache|preload|in_?memory|(?:^|_)ram(?:$|_)|fits", re.IGNORECASE)
_IMAGE_ARRAY = re.compile(
    r"(?:^|_|\b)(?:images?|imgs?|frames?|videos?|pixels|tiles|patches|scans|volumes|slices|photos|faces)(?:$|_|\b|\d)",
    re.IGNORECASE,
)
_ANY_ARRAY = re.compile(r"^(?:data|x|inputs?|samples|arrays?|arr|x_?train|train_?(?:x|data))$", re.IGNORECASE)
_SHOWING = re.compile(
    r"mimsave|mimwrite|save_all|gif|ImageSequenceClip|montage|make_grid|imshow|show|plot|write", re.IGNORECASE
)
_AUDIO_READS = {"librosa.load", "torchaudio.load", "soundfile.read", "scipy.io.wavfile.read"}
_SMALL = re.compile(
    r"label|target|mean|std|box|index|indices|ids?\b|mask_id|weight|meta|name|shape|size|anchor|mnist|cifar",
    re.IGNORECASE,
)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for place in dict.fromkeys((*document.images.collections(), *document.volumes.collections())):
        if not _is_allowed(document, place) and not _is_shown(code, place):
            message = (
                f"`{short_source(code, place)}` keeps the whole data set decoded in RAM: keep the paths, and read each "
                "image in `__getitem__` of a Dataset"
            )
            yield Problem(code.span(place), message)
    yield from _all_recordings(document)
    yield from _whole_arrays(document)
    yield from _whole_files(document)
    yield from _growing_caches(document)


def _is_allowed(document: Document, place: ast.AST) -> bool:
    """Return True in code that loads one sample or batch, and where an option of the user asks for it."""
    code = document.code
    for outer in code.ancestors(place):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            callers = [code.function(call) for call in document.calls.calls_of(outer)]
            if _loads_part(outer) or (callers and all(map(_loads_part, callers))):
                return True
        if isinstance(outer, ast.If) and _OPTION.search(ast.unparse(outer.test)):
            return True
    return False


def _loads_part(function: Function | None) -> bool:
    """Return True for a function that loads one sample or batch at a time."""
    return function is not None and _PER_BATCH.search(function.name) is not None


def _is_shown(code: Code, place: ast.AST) -> bool:
    """Return True if images are collected for a picture or film of them."""
    container = place.func.value if isinstance(place, ast.Call) and isinstance(place.func, ast.Attribute) else None
    statement = code.parent(place)
    if isinstance(statement, ast.Assign):
        container = statement.targets[0]
    name = code.name(container)
    if name is None:
        return False
    if "gallery" in name.lower():
        return True
    scope = code.function(place) or code.tree
    return any(
        isinstance(node, ast.Call)
        and _SHOWING.search(ast.unparse(node.func))
        and any(
            code.name(part) == name
            for argument in (*node.args, *(item.value for item in node.keywords))
            for part in walk(argument)
        )
        for node in walk(scope)
    )


def _all_recordings(document: Document) -> Iterator[Problem]:
    """Yield the comprehensions of a dataset's `__init__` that decode every recording."""
    code = document.code
    owners = {method_of(owner, "__init__") for owner in dataset_classes(code)}
    nodes: list[ast.ListComp | ast.DictComp] = [*code.nodes(ast.ListComp), *code.nodes(ast.DictComp)]
    for node in nodes:
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        while isinstance(element, ast.Subscript):  # wave, rate = load(path)
            element = element.value
        is_all = any(document.images.files.covers_all(part.iter) for part in node.generators)
        is_kept = code.call_name(element) in _AUDIO_READS and code.function(node) in owners
        if is_kept and is_all and not _is_allowed(document, node):
            message = (
                f"`{short_source(code, node)}` keeps all decoded recordings in RAM: keep the paths, and read each "
                "file in `__getitem__`"
            )
            yield Problem(code.span(node), message)


def _whole_arrays(document: Document) -> Iterator[Problem]:
    """Yield calls of np.load that read the images of a data set at once."""
    code = document.code
    owners = {method_of(owner, "__init__") for owner in dataset_classes(code)}
    for call in code.nodes(ast.Call):
        if not document.images.is_array_read(call) or any(keyword.arg == "mmap_mode" for keyword in call.keywords):
            continue
        statement = code.statement(call)
        is_kept = isinstance(statement, ast.Assign) and next(code.loops_around(call), None) is None
        if not is_kept or _is_allowed(document, call) or not call.args:
            continue
        name = last_part(code.name(statement.targets[0]))  # type: ignore[attr-defined]
        path = code.constant(call.args[0])
        words = f"{name} {path if isinstance(path, str) else ''}"
        if _SMALL.search(words) or words.rstrip().endswith(".npz"):
            continue
        function = code.function(call)
        in_dataset = function is not None and function in owners
        is_script = function is None and _feeds_training(document, name)
        if (in_dataset and (_IMAGE_ARRAY.search(words) or _ANY_ARRAY.match(name))) or (
            is_script and _IMAGE_ARRAY.search(words)
        ):
            message = (
                f'`{code.source(call)}` reads the whole array into RAM: pass mmap_mode="r", so that only the samples '
                "in use are read"
            )
            yield Problem(code.span(call), message)


def _whole_files(document: Document) -> Iterator[Problem]:
    """Yield `file["images"][:]` of an HDF5 file that is kept by a dataset."""
    code = document.code
    owners = {method_of(owner, "__init__") for owner in dataset_classes(code)}
    if "h5py" not in document.text:
        return
    for node in code.nodes(ast.Subscript):
        statement = code.parent(node)
        is_kept = isinstance(statement, ast.Assign) and statement.value is node and code.function(node) in owners
        key = code.constant(node.value.slice) if isinstance(node.value, ast.Subscript) else None
        if not is_kept or not isinstance(key, str) or ast.unparse(node.slice) not in {":", "...", "()"}:
            continue
        words = f"{last_part(code.name(statement.targets[0]))} {key}"  # type: ignore[union-attr]
        if _IMAGE_ARRAY.search(words) and not _SMALL.search(words) and not _is_allowed(document, node):
            message = (
                f"`{short_source(code, node)}` reads all of the file into RAM: keep the file open, and index it in "
                "`__getitem__`"
            )
            yield Problem(code.span(node), message)


def _feeds_training(document: Document, name: str) -> bool:
    """Return True if an array is an argument of a dataset or of `fit`."""
    code = document.code
    for call in code.nodes(ast.Call):
        last = last_part(code.call_name(call)) or getattr(call.func, "attr", "")
        if (last in {"fit", "from_numpy"} or last.endswith("Dataset")) and any(
            code.name(argument) == name for argument in call.args
        ):
            return True
    return False


def _growing_caches(document: Document) -> Iterator[Problem]:
    """Yield `self.cache[i] = image` in `__getitem__`, after which each worker keeps all images."""
    code = document.code
    methods = {method_of(owner, "__getitem__") for owner in dataset_classes(code)}
    for statement in code.nodes(ast.Assign):
        target = statement.targets[0]
        if not isinstance(target, ast.Subscript) or code.function(statement) not in methods:
            continue
        name = code.name(target.value) or ""
        is_read = any(flow.is_image(statement.value) for flow in (document.images, document.volumes))
        if name.startswith("self.") and is_read and not _is_bounded(code, statement):
            message = (
                f"`{short_source(code, statement)}` keeps every decoded image, in every worker again: read the image "
                "each time, or keep a limited number"
            )
            yield Problem(code.span(statement), message)


def _is_bounded(code: Code, statement: ast.Assign) -> bool:
    """Return True if a condition other than "is it there already" decides what is cached."""
    for outer in code.ancestors(statement):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(outer, ast.If):
            test = outer.test
            is_lookup = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.In, ast.NotIn, ast.Is))
            if not is_lookup:
                return True
    return False


DATASET_IN_MEMORY = Rule(
    "dataset-in-memory",
    RuleFamily.DATA,
    "The whole data set is decoded into RAM",
    _check,
    triggers=(
        "imread", "Image.open", "np.load", "numpy.load", "load_img", "read_image", "decode_image", "decode_jpeg",
        "imdecode", "dcmread", "pil_loader", "h5py", "librosa", "torchaudio", "soundfile", "wavfile", "rasterio",
        "get_fdata", "ReadImage",
    ),
)  # fmt: skip
