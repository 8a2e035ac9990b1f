"""Batches and model outputs: nested structures of tensors that are counted, split, joined and moved."""

from ._formats import FORMAT_NAMES, BatchFormat, Splitter, batch_format
from ._join import join_outputs
from ._samples import SampleCounter, count_samples
from ._split import micro_batch_sizes, split_batch, split_samples
from ._structure import map_tensors, move, tensors_in, write_versions

__all__ = [
    "FORMAT_NAMES",
    "BatchFormat",
    "SampleCounter",
    "Splitter",
    "batch_format",
    "count_samples",
    "join_outputs",
    "map_tensors",
    "micro_batch_sizes",
    "move",
    "split_batch",
    "split_samples",
    "tensors_in",
    "write_versions",
]
