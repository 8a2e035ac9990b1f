from __future__ import annotations

from oomph.sweeps import Cell, CellRequest, CellResult, CellTask, FreeMemory, Limits, Status, read_free_memory


def make_task(host: int | None, gpu: int | None) -> CellTask:
    request = CellRequest(("true",), "/", limits=Limits(host=host, gpu=gpu))
    return CellTask(Cell((), 0), request, lambda cell, *_: CellResult(cell, Status.DONE))


def test_budgets_must_fit_together_on_host_and_gpu() -> None:
    free = FreeMemory(host=10, gpu=6)
    assert free.admits([make_task(5, 3)], make_task(5, 3))
    assert not free.admits([make_task(5, 3)], make_task(6, 3))
    assert not free.admits([make_task(5, 3)], make_task(5, 4))
    assert free.admits([make_task(None, None)], make_task(5, 3))
    assert FreeMemory(None, None).admits([make_task(50, 50)], make_task(5, 3))


def test_this_machine_has_free_memory() -> None:
    assert (read_free_memory().host or 0) > 0


def test_what_is_predicted_counts_instead_of_the_limit() -> None:
    cell = Cell((("batch", 1),))
    task = CellTask(
        cell,
        CellRequest((), ".", limits=Limits(host=90)),
        lambda *_: CellResult(cell, Status.DONE),
        need=Limits(host=40),
    )
    assert FreeMemory(host=100, gpu=None).admits([task], task)
    assert not FreeMemory(host=79, gpu=None).admits([task], task)
