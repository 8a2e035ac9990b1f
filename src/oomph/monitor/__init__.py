"""Measurements of runs: samplers, the Record, its diagnosis, explanations of failures. Imports no torch at import."""

from ._explanation import Explanation, explain, explain_record, explain_stream
from ._machine_probe import MachineProbe
from ._measure import Measurement, measure
from ._probe import Probe, allocator_fields
from ._process_tree import ProcessMemory, ProcessTree
from ._process_use import ProcessInfo, ProcessUse
from ._record import Record, load_record
from ._recorder import Recorder
from ._run_progress import RunProgress
from ._sampler import Sampler, record_error, watch
from ._step_timer import step_timer
from ._training_step import TrainingStep
from ._watcher import Reading, Watcher
from .diagnosis import diagnose_record

__all__ = [
    "Explanation",
    "MachineProbe",
    "Measurement",
    "Probe",
    "ProcessInfo",
    "ProcessMemory",
    "ProcessTree",
    "ProcessUse",
    "Reading",
    "Record",
    "Recorder",
    "RunProgress",
    "Sampler",
    "TrainingStep",
    "Watcher",
    "allocator_fields",
    "diagnose_record",
    "explain",
    "explain_record",
    "explain_stream",
    "load_record",
    "measure",
    "record_error",
    "step_timer",
    "watch",
]
