from __future__ import annotations

from oomph.report import WatchLines
from oomph.units import GIB, MIB


def sample(used: int, **more: object) -> dict[str, object]:
    return {"ram_total": 10 * GIB, "ram_available": 10 * GIB - used, "rss": used, "children": 3, **more}


def test_trend_has_a_forecast() -> None:
    lines = WatchLines()
    for second in range(31):
        line = lines.add(1000.0 + second, sample(2 * GIB + second * 20 * MIB))
    assert "RAM 2.59 GiB of 10 GiB (+1.17 GiB/min, full in 6 min)" in line
    assert "process tree 2.59 GiB (+1.17 GiB/min, 3 child processes)" in line


def test_trend_needs_time_and_can_be_steady() -> None:
    lines = WatchLines()
    assert "RAM 1 GiB of 10 GiB  " in lines.add(1000.0, sample(GIB)) + "  "
    assert "RAM 1 GiB of 10 GiB (steady)" in lines.add(1010.0, sample(GIB))


def test_gpu_swap_and_cgroup_have_their_part() -> None:
    gpu = {"index": 1, "name": "T4", "total": 16 * GIB, "free": 4 * GIB, "utilization": 70, "tree_used": 9 * GIB}
    more = {"swap_total": GIB, "swap_used": MIB, "swap_in_rate": 5 * MIB, "swap_out_rate": 0, "cgroup_limit": 4 * GIB}
    gpus = [{**gpu, "others_used": 2 * GIB, "other_pid": 77}]
    line = WatchLines(page_file=True).add(1000.0, sample(GIB, gpus=gpus, cgroup_used=GIB, **more))
    assert "GPU 1 12 GiB of 16 GiB (70 % busy, this tree 9 GiB, others 2 GiB, process 77, T4)" in line
    assert "page file 1 MiB of 1 GiB (paging 5 MiB/s)" in line
    assert "cgroup 1 GiB of 4 GiB" in line


def test_hostile_process_name_is_shown_as_text() -> None:
    processes = [{"pid": 7, "name": "\x1b[2Jevil\n", "rss": GIB, "children": 0, "gpu": 2 * GIB}]
    line = WatchLines().add(1000.0, sample(GIB, processes=processes))
    assert line.endswith("?[2Jevil? 7: 1 GiB and 2 GiB of GPU memory")
    assert line.isprintable()
