"""Planning: the fastest settings that fit, each change with its reason and its cost. Pure, no torch at import."""

from ._job_plan import plan
from ._largest_batch import largest_fitting, plan_largest_batch
from ._make_plan import plan_fastest
from ._micro_batch import MicroBatchEstimate, estimate_micro_batch
from ._plan import Alternative, DataLoaderPlan, Plan, PlanChange
from ._predictor import JobPredictor, Predictor, first_micro_batches
from ._request import GOALS, PERMISSIONS, PlanRequest, read_allowed
from ._script_plan import plan_script
from ._script_predictor import ScriptPredictor
from ._step_profile import StepProfile, step_profile
from ._which_gpu import GpuOption, next_smaller, which_gpus
from .explorer import PEAK_KINDS, PredictionTable, TableChoice, TableEstimate, TablePosition, build_prediction_table

__all__ = [
    "GOALS",
    "PEAK_KINDS",
    "PERMISSIONS",
    "Alternative",
    "DataLoaderPlan",
    "GpuOption",
    "JobPredictor",
    "MicroBatchEstimate",
    "Plan",
    "PlanChange",
    "PlanRequest",
    "PredictionTable",
    "Predictor",
    "ScriptPredictor",
    "StepProfile",
    "TableChoice",
    "TableEstimate",
    "TablePosition",
    "build_prediction_table",
    "estimate_micro_batch",
    "first_micro_batches",
    "largest_fitting",
    "next_smaller",
    "plan",
    "plan_fastest",
    "plan_largest_batch",
    "plan_script",
    "read_allowed",
    "step_profile",
    "which_gpus",
]
