"""What a run does to memory, measured: samplers, the Record, verdicts on it, explanations. Imports no torch itself."""

from ._explain import Explanation, explain, explain_bytes
from ._judge import judge
from ._probe import Probe
from ._record import Record, load_record
from ._recorder import Recorder
from ._sampler import Sampler, watch

__all__ = [
    "Explanation",
    "Probe",
    "Record",
    "Recorder",
    "Sampler",
    "explain",
    "explain_bytes",
    "judge",
    "load_record",
    "watch",
]
