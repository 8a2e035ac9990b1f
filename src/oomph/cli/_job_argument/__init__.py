"""The argument JOB of `predict` and `plan`: a Job, a training script, and the page that explores one."""

from ._explorer import ExplorerPage
from ._job import BUILT_IN_SIZE, built_in_jobs, find_job
from ._script import JobOrScript, MaxSeconds, Script, Yes, is_script, reject_arguments, reject_job_flags

__all__ = [
    "BUILT_IN_SIZE",
    "ExplorerPage",
    "JobOrScript",
    "MaxSeconds",
    "Script",
    "Yes",
    "built_in_jobs",
    "find_job",
    "is_script",
    "reject_arguments",
    "reject_job_flags",
]
