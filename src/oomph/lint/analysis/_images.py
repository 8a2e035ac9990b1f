"""Images in code: where they are read from files, and which names and arrays hold them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ._assignments import Assignment
from ._calls import LocalCalls, called_name
from ._code import Code, walk
from ._files_of_dataset import DatasetFiles, Visited, is_new

_READS = {
    "imread", "imdecode", "load_img", "read_image", "decode_image", "decode_jpeg", "decode_png", "pil_loader",
    "default_loader", "dcmread",
}  # fmt: skip
_VOLUME_READS = {"get_fdata", "ReadImage", "GetArrayFromImage", "GetArrayViewFromImage"}
_OPENS = {"PIL.Image.open", "Image.open"}
# Functions and methods whose result is the same image in another form.
_KEEPING = {
    "array", "as_tensor", "asarray", "ascontiguousarray", "astype", "cast", "clip", "clone", "contiguous", "convert",
    "copy", "crop", "cvtColor", "decode", "div", "exif_transpose", "expand_dims", "fit", "flip", "fliplr", "flipud",
    "float", "float32", "float64", "FloatTensor", "from_numpy", "get_fdata", "half", "img_to_array", "load",
    "moveaxis", "numpy", "open", "permute", "pil_to_tensor", "pixel_array", "reshape", "resize", "resize_with_pad",
    "rgb2gray", "rollaxis", "rotate", "squeeze", "tensor", "thumbnail", "to", "to_tensor", "ToTensor", "transpose",
    "type", "uint8", "unsqueeze",
}  # fmt: skip
_KEEPING_NAME = re.compile(
    r"transform|tfms?$|augment|resize|crop|normali[sz]e|preprocess|letterbox|to_rgb|(?:^|_)pad(?:$|_)"
)
_ARRAYS = {
    "array",
    "asarray",
    "stack",
    "vstack",
    "concatenate",
    "tensor",
    "from_numpy",
    "FloatTensor",
    "as_tensor",
    "cat",
    "convert_to_tensor",
    "Tensor",
}
_EMPTY_ARRAYS = {"zeros", "empty", "ones"}
_IMAGE_DIMENSIONS = 4

Comprehension = ast.ListComp | ast.DictComp | ast.GeneratorExp | ast.SetComp


class ImageFlow:
    """Follows images from the file to names, lists and arrays within one document."""

    def __init__(self, code: Code, calls: LocalCalls) -> None:
        self._code = code
        self._calls = calls
        self.files = DatasetFiles(code, calls)
        self._appends = list(_appends(code))

    # Single images.

    def is_read(self, node: ast.AST | None) -> bool:
        """Return True if a call reads an image from a file."""
        if not isinstance(node, ast.Call):
            return False
        func = node.func
        last = called_name(node)
        if last in _READS:
            # Functions of tf.data run in TensorFlow's graph.
            name = self._code.resolve(func)
            is_graph = name.startswith("tensorflow.") and not name.startswith("tensorflow.keras.")
            is_graph = is_graph and not self._is_eager(node)
            return not is_graph and self._calls.function(node) is None
        if last == "read" and isinstance(func, ast.Attribute):
            return any(self._code.call_name(value) == "rasterio.open" for value in self._code.values(func.value))
        return last == "open" and self._code.resolve(func) in _OPENS

    def _is_eager(self, node: ast.Call) -> bool:
        """Return True if Python itself runs a function of TensorFlow: in a loop, or in a function that code calls."""
        function = self._code.function(node)
        if function is None:
            return next(self._code.loops_around(node), None) is not None
        return bool(self._calls.calls_of(function))

    def is_array_read(self, node: ast.AST | None) -> bool:
        """Return True if a call reads an array from a file."""
        return self._code.call_name(node) == "numpy.load"

    def is_image(self, node: ast.AST | None, visited: Visited | None = None) -> bool:
        """Return True if an expression is an image that was read from a file, maybe resized or converted."""
        visited = set() if visited is None else visited
        if node is None or not is_new(node, visited):
            return False
        return any(self.is_image(part, visited) for part in self._image_parts(node)) or (
            isinstance(node, ast.Call) and self._call_is_image(node, visited)
        )

    def _image_parts(self, node: ast.AST) -> list[ast.expr]:
        """Return the expressions of which one must be an image if a node is one; calls are another matter."""
        if isinstance(node, ast.Name):
            if self._is_comprehension_target(node):
                return []
            return [value for value in self._code.values(node) if value is not node]
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        if isinstance(node, (ast.Tuple, ast.List)):
            return node.elts
        if isinstance(node, ast.Dict):
            return node.values
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return [node.elt]
        if isinstance(node, ast.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, ast.Attribute):
            return [node.value] if node.attr in {"T", "pixel_array"} else []
        return [node.value] if isinstance(node, ast.Subscript) else []

    def _is_comprehension_target(self, node: ast.Name) -> bool:
        """Return True if a comprehension around a name gives it its value; a name outside may be another one."""
        for outer in self._code.ancestors(node):
            if isinstance(outer, ast.stmt):
                return False
            if isinstance(outer, Comprehension) and any(
                isinstance(part, ast.Name) and part.id == node.id
                for generator in outer.generators
                for part in ast.walk(generator.target)
            ):
                return True
        return False

    def _call_is_image(self, node: ast.Call, visited: Visited) -> bool:
        if self.is_read(node) or self.is_array_read(node):
            return True
        function = self._calls.function(node)
        if function is not None:
            results = self._calls.results(function)
            return any(self.is_image(result, visited) for result in results)
        func = node.func
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        last = called_name(node)
        if isinstance(func, ast.Attribute) and last in _KEEPING and self.is_image(func.value, visited):
            return True
        is_applied = isinstance(func, ast.Call) and "transforms" in self._code.call_name(func)
        if last in _KEEPING or is_applied or _KEEPING_NAME.search(last):
            return any(self.is_image(argument, visited) for argument in arguments[:2])
        return False

    # All images.

    def collections(self) -> Iterator[ast.AST]:
        """Yield the places where all images of a data set are kept: comprehensions, appends, items of arrays."""
        comprehensions: list[Comprehension] = [*self._code.nodes(ast.ListComp), *self._code.nodes(ast.DictComp)]
        comprehensions += [*self._code.nodes(ast.GeneratorExp), *self._code.nodes(ast.SetComp)]
        yield from (comprehension for comprehension in comprehensions if self._collects(comprehension))
        for call, _, value in self._appends:
            if self._keeps_all(call, value):
                yield call
        for call in self._code.nodes(ast.Call):
            if self._maps_all(call) or self._joins_all(call) or self._runs_parallel(call):
                yield call
        for statement in self._code.nodes(ast.AugAssign):
            is_list = isinstance(statement.value, (ast.List, ast.Tuple))
            if is_list and self._keeps_all(statement, statement.value):
                yield statement

    def is_collection(self, node: ast.AST | None, visited: Visited | None = None) -> bool:
        """Return True if an expression is a list or array of all images."""
        visited = set() if visited is None else visited
        if node is None or not is_new(node, visited):
            return False
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._collects(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._name_is_collection(node, visited)
        if isinstance(node, ast.BinOp):
            return self.is_collection(node.left, visited) or self.is_collection(node.right, visited)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return self.is_collection(node.value, visited)
        if isinstance(node, ast.Call):
            return self._call_is_collection(node, visited)
        return False

    def _call_is_collection(self, node: ast.Call, visited: Visited) -> bool:
        func = node.func
        function = self._calls.function(node)
        if function is not None:
            results = list(self._calls.results(function))
            return any(self.is_collection(result, visited) for result in results if not isinstance(result, ast.Tuple))
        if self._maps_all(node) or self._runs_parallel(node):
            return True
        last = called_name(node)
        if last in _ARRAYS or last == "list" or _KEEPING_NAME.search(last):
            return any(self.is_collection(argument, visited) for argument in node.args[:1])
        return isinstance(func, ast.Attribute) and last in _KEEPING and self.is_collection(func.value, visited)

    def _name_is_collection(self, node: ast.Name | ast.Attribute, visited: Visited) -> bool:
        name = self._code.name(node)
        if name is None:
            return False
        assignments = self._code.assignments(name, node)
        scopes = {self._code.scope(item.statement) for item in assignments}
        for call, target, value in self._appends:
            if target == name and (self._code.scope(call) in scopes or not scopes) and self._keeps_all(call, value):
                return True
        return any(self._assignment_is_collection(item, name, visited) for item in assignments if item.kind == "=")

    def _assignment_is_collection(self, item: Assignment, name: str, visited: Visited) -> bool:
        if item.value is not None:
            return self.is_collection(item.value, visited)
        statement = item.statement
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        target, call = statement.targets[0], statement.value
        names = [self._code.name(element) for element in getattr(target, "elts", [])]
        position = names.index(name) if name in names else -1
        if position < 0:
            return False
        if self._code.call_name(call).endswith("train_test_split"):
            return position // 2 < len(call.args) and self.is_collection(call.args[position // 2], visited)
        function = self._calls.function(call)
        results = self._calls.results(function) if function is not None else ()
        return any(
            self.is_collection(result.elts[position], visited)
            for result in results
            if isinstance(result, ast.Tuple) and position < len(result.elts)
        )

    def _collects(self, node: Comprehension) -> bool:
        """Return True if a comprehension reads all files."""
        if isinstance(node, ast.GeneratorExp):
            parent = self._code.parent(node)
            last = self._code.call_name(parent).rpartition(".")[2]
            if last not in {"list", "tuple", "dict"}:
                return False
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        if not self._is_whole(element):
            return False
        return any(self.files.covers_all(generator.iter) for generator in node.generators)

    def _is_whole(self, node: ast.expr) -> bool:
        """Return True for an image of which not only a window or a smaller version is read."""
        calls = (part for value in (node, *self._code.values(node)) for part in ast.walk(value))
        is_part = any(
            keyword.arg in {"window", "out_shape"}
            for call in calls
            if isinstance(call, ast.Call)
            for keyword in call.keywords
        )
        return self.is_image(node) and not is_part

    def _maps_all(self, node: ast.Call) -> bool:
        """Return True for `list(map(cv2.imread, files))` and `pool.map(read, files)`."""
        last = self._code.call_name(node).rpartition(".")[2] or getattr(node.func, "attr", "")
        if last not in {"map", "imap", "apply"} or not node.args:
            return False
        is_builtin = isinstance(node.func, ast.Name)
        if is_builtin and self._code.call_name(self._code.parent(node)).rpartition(".")[2] not in {"list", "tuple"}:
            return False
        # `pool.map(read, files)` or `table["path"].apply(read)`.
        files = (
            node.args[1] if len(node.args) > 1 else node.func.value if isinstance(node.func, ast.Attribute) else None
        )
        return files is not None and self._is_reading_function(node.args[0]) and self.files.covers_all(files)

    def _runs_parallel(self, node: ast.Call) -> bool:
        """Return True for joblib's `Parallel(8)(delayed(cv2.imread)(path) for path in files)`."""
        generator = node.args[0] if node.args else None
        if self._code.call_name(node.func).rpartition(".")[2] != "Parallel" or not isinstance(
            generator, (ast.GeneratorExp, ast.ListComp)
        ):
            return False
        task = generator.elt.func if isinstance(generator.elt, ast.Call) else None
        if not isinstance(task, ast.Call) or not task.args or not self._is_reading_function(task.args[0]):
            return False
        return any(self.files.covers_all(part.iter) for part in generator.generators)

    def _joins_all(self, node: ast.Call) -> bool:
        """Return True for `images = np.concatenate([images, image[None]])` in a loop over all files."""
        last = self._code.call_name(node).rpartition(".")[2]
        parent = self._code.parent(node)
        if last not in {"concatenate", "vstack", "append", "cat"} or not (isinstance(parent, ast.Assign) and node.args):
            return False
        parts = node.args[0].elts if isinstance(node.args[0], (ast.List, ast.Tuple)) else node.args
        name = self._code.name(parent.targets[0])
        if name is None or not any(self._code.name(part) == name for part in parts):
            return False
        loops = [loop for loop in self._code.loops_around(node) if isinstance(loop, ast.For)]
        is_all = any(self.files.covers_all(loop.iter) for loop in loops)
        return is_all and any(self.is_image(part) for part in parts if self._code.name(part) != name)

    def _is_reading_function(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Lambda):
            return self.is_image(node.body)
        call = ast.Call(func=node, args=[], keywords=[])
        if self.is_read(call):
            return True
        function = self._calls.function(call)
        results = self._calls.results(function) if function is not None else ()
        return any(self.is_image(result) for result in results)

    def _keeps_all(self, node: ast.AST, value: ast.expr) -> bool:
        """Return True if a loop over all files keeps an image at every iteration."""
        if not self._is_whole(value):
            return False
        loops = [loop for loop in self._code.loops_around(node) if isinstance(loop, ast.For)]
        if not any(self.files.covers_all(loop.iter) for loop in loops):
            return False
        container = _container(node)
        name = self._code.name(container)
        return name is not None and not any(_empties(self._code, loop, name) for loop in loops)


class VolumeFlow(ImageFlow):
    """Follows the scans that libraries for medicine read; they have more than 8 bits."""

    def is_read(self, node: ast.AST | None) -> bool:
        """Return True if a call reads a volume from a file."""
        return called_name(node) in _VOLUME_READS

    def is_array_read(self, node: ast.AST | None) -> bool:
        """Return False: arrays of NumPy are images."""
        del node
        return False


def _appends(code: Code) -> Iterator[tuple[ast.AST, str | None, ast.expr]]:
    """Yield place, container and value of `images.append(x)` and `images[i] = x`."""
    for call in code.nodes(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "append" and len(call.args) == 1:
            yield call, code.name(func.value), call.args[0]
    for statement in code.nodes(ast.Assign):
        target = statement.targets[0]
        if isinstance(target, ast.Subscript) and next(code.loops_around(statement), None) is not None:
            yield statement, code.name(target.value), statement.value


def _container(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0].value
    if isinstance(node, ast.AugAssign):
        return node.target
    return None


def _empties(code: Code, loop: ast.For, name: str) -> bool:
    """Return True if a loop empties a container, hands it on in parts, or stops early."""
    for node in walk(loop):
        if isinstance(node, (ast.Break, ast.Yield, ast.YieldFrom)):
            return True
        if isinstance(node, ast.Assign) and any(code.name(target) == name for target in node.targets):
            return True
        if isinstance(node, ast.Delete) and any(code.name(target) == name for target in node.targets):
            return True
        is_method = (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and code.name(node.func.value) == name
        )
        if is_method and node.func.attr in {"clear", "pop", "popleft"}:  # type: ignore[attr-defined]
            return True
    return False


def is_array_of_images(code: Code, node: ast.expr) -> bool:
    """Return True if an array is created with the shape of a set of images: `np.zeros((80_000, 256, 256, 3))`."""
    for value in code.values(node):
        if code.call_name(value).rpartition(".")[2] in _EMPTY_ARRAYS and isinstance(value, ast.Call) and value.args:
            shape = value.args[0]
            if isinstance(shape, (ast.Tuple, ast.List)) and len(shape.elts) >= _IMAGE_DIMENSIONS:
                return True
    return False
