"""Names of operations and modules, as users know them."""

from __future__ import annotations

from collections.abc import Mapping


def op_name(op: str) -> str:
    """Return the name of an operation without its namespace and its default overload."""
    return op.removeprefix("aten.").removesuffix(".default")


def class_of(path: str, classes: Mapping[str, str]) -> str:
    """Return the class of the module with this path, or of the module whose parameter it is."""
    if not path:
        return ""
    return classes.get(path) or classes.get(path.rpartition(".")[0], "")


def module_name(path: str, classes: Mapping[str, str]) -> str:
    """Return a module's path with its class, such as "layer1.0.conv1 (Conv2d)"."""
    module_class = class_of(path, classes)
    return f"{path} ({module_class})" if module_class else path
