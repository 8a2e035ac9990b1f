"""Analysis of Python code without running it: names, values, roles of variables, and training loops."""

from ._arguments import default_value, passed_value, passed_values
from ._assignments import Assignment
from ._branches import are_exclusive, branches_around, is_conditional
from ._build import build_code
from ._calls import LocalCalls, called_name, default_of
from ._code import Code, Function, Loop, Scope, walk
from ._data_loaders import DataLoaderCall, DataLoaders, integer, iterated
from ._grad_mode import autocast_block, defined_decorator, is_autocast, is_no_grad, runs_without_grad
from ._graph_values import (
    GraphValues,
    assigned_value,
    backward_operands,
    gradients_are_off,
    is_loss_function,
    last_assignment,
)
from ._handlers import (
    catches_only_oom,
    caught_names,
    is_about_memory,
    is_broad,
    is_half,
    is_halving,
    is_heavy_call,
    looks_at_exception,
    runs_model,
)
from ._images import ImageFlow, is_array_of_images
from ._items import item_source
from ._loading_code import dataset_classes, getitem_of, loading_functions, method_of
from ._models import (
    called_model,
    callers,
    calls_of,
    criterion_names,
    heavy_functions,
    iterates_over_loader,
    loop_sources,
    model_calls,
    model_names,
    training_calls,
    training_regions,
)
from ._repair import is_python
from ._roles import (
    is_accelerator,
    is_loader,
    is_loss,
    is_model,
    is_optimizer,
    is_scaler,
    is_scheduler,
    last_part,
)
from ._training_loop import Accumulation, Event, EventKind, TrainingLoop, events_in, find_training_loops

__all__ = [
    "Accumulation",
    "Assignment",
    "Code",
    "DataLoaderCall",
    "DataLoaders",
    "Event",
    "EventKind",
    "Function",
    "GraphValues",
    "ImageFlow",
    "LocalCalls",
    "Loop",
    "Scope",
    "TrainingLoop",
    "are_exclusive",
    "assigned_value",
    "autocast_block",
    "backward_operands",
    "branches_around",
    "build_code",
    "called_model",
    "called_name",
    "callers",
    "calls_of",
    "catches_only_oom",
    "caught_names",
    "criterion_names",
    "dataset_classes",
    "default_of",
    "default_value",
    "defined_decorator",
    "events_in",
    "find_training_loops",
    "getitem_of",
    "gradients_are_off",
    "heavy_functions",
    "integer",
    "is_about_memory",
    "is_accelerator",
    "is_array_of_images",
    "is_autocast",
    "is_broad",
    "is_conditional",
    "is_half",
    "is_halving",
    "is_heavy_call",
    "is_loader",
    "is_loss",
    "is_loss_function",
    "is_model",
    "is_no_grad",
    "is_optimizer",
    "is_python",
    "is_scaler",
    "is_scheduler",
    "item_source",
    "iterated",
    "iterates_over_loader",
    "last_assignment",
    "last_part",
    "loading_functions",
    "looks_at_exception",
    "loop_sources",
    "method_of",
    "model_calls",
    "model_names",
    "passed_value",
    "passed_values",
    "runs_model",
    "runs_without_grad",
    "training_calls",
    "training_regions",
    "walk",
]
