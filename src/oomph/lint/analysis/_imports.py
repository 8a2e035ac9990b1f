"""Names that imports bind, and the usual meaning of names in snippets without imports."""

from __future__ import annotations

import ast
from collections.abc import Sequence

BUILTIN_ALIASES = {
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "np": "numpy",
    "pd": "pandas",
    "tf": "tensorflow",
    "plt": "matplotlib.pyplot",
    "transforms": "torchvision.transforms",
    "T": "torchvision.transforms",
    "Image": "PIL.Image",
    "A": "albumentations",
    "DataLoader": "torch.utils.data.DataLoader",
    "Dataset": "torch.utils.data.Dataset",
    "GradScaler": "torch.amp.GradScaler",
    "autocast": "torch.autocast",
    "clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "Accelerator": "accelerate.Accelerator",
    "tqdm": "tqdm.tqdm",
    "AdamW": "torch.optim.AdamW",
    "Adam": "torch.optim.Adam",
    "SGD": "torch.optim.SGD",
    "YOLO": "ultralytics.YOLO",
    "Sequence": "keras.utils.Sequence",
    "PyDataset": "keras.utils.PyDataset",
}
_SUBMODULES = {"tqdm.auto.tqdm": "tqdm.tqdm", "tqdm.notebook.tqdm": "tqdm.tqdm"}


def import_aliases(imports: Sequence[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Return the full name of every name that an import binds."""
    aliases: dict[str, str] = {}
    for node in imports:
        if isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            for alias in node.names:
                full = f"{module}.{alias.name}"
                aliases[alias.asname or alias.name] = _SUBMODULES.get(full, full)
            continue
        for alias in node.names:
            # `import torch.nn as nn` binds nn to the submodule, `import torch.nn` binds torch.
            head = alias.name.partition(".")[0]
            aliases[alias.asname or head] = alias.name if alias.asname else head
    return aliases
