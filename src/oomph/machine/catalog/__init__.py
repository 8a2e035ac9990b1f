"""The catalog of GPUs and cloud machines, and the search in it by name."""

from ._catalog import NOMINAL, CloudMachine, GpuSpec, Rates, cloud_machines, gpu_specs
from ._search import cloud_machines_with, find_cloud_machine, find_gpu, find_in_catalog

__all__ = [
    "NOMINAL",
    "CloudMachine",
    "GpuSpec",
    "Rates",
    "cloud_machines",
    "cloud_machines_with",
    "find_cloud_machine",
    "find_gpu",
    "find_in_catalog",
    "gpu_specs",
]
