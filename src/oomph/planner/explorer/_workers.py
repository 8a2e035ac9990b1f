"""Predictions in this process, or several at a time in workers that load the Job themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from ...errors import UsageError
from ...job import Job
from ._family import Family, FamilyRequest, predict_family
from ._update import UpdateRequest, UpdateTimes, time_update

LoadJob = Callable[[], Job]
Request = FamilyRequest | UpdateRequest
Result = Family | UpdateTimes | UsageError  # what was requested, or why it isn't possible
Predict = Callable[[Iterable[Request]], Iterator[Result]]  # in the order of the requests


@contextmanager
def predictor(load_job: LoadJob, workers: int) -> Iterator[Predict]:
    """Yield a function that predicts settings of one Job."""
    if workers == 1:
        job = load_job()
        yield lambda requests: (_predict(job, request) for request in requests)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _load, (load_job,))
    try:
        yield lambda requests: pool.map(_predict_in_worker, requests)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _predict(job: Job, request: Request) -> Result:
    try:
        return predict_family(job, request) if isinstance(request, FamilyRequest) else time_update(job, request)
    except UsageError as error:
        return UsageError(error.why, error.fix)  # without its cause, which may refer to anything


_job_of_worker: list[Job] = []  # a worker process predicts one Job


def _load(load_job: LoadJob) -> None:
    _job_of_worker.append(load_job())


def _predict_in_worker(request: Request) -> Result:
    return _predict(_job_of_worker[0], request)
