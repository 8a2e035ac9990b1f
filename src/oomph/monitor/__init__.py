"""What a run does to memory, measured: samplers, the Record, verdicts on it, explanations. Imports no torch itself."""

from ._explanation import Explanation, explain, explain_stream
from ._measure import Measurement, measure
from ._probe import Probe
from ._record import Record, load_record
from ._recorder import Recorder
from ._sampler import Sampler, watch
from ._step_timer import step_timer
from ._survey import MachineProbe
from ._verdicts import judge

__all__ = [
    "Explanation",
    "MachineProbe",
    "Measurement",
    "Probe",
    "Record",
    "Recorder",
    "Sampler",
    "explain",
    "explain_stream",
    "judge",
    "load_record",
    "measure",
    "step_timer",
    "watch",
]
