"""NVML data recorded on an H200 (driver 580.159.04, 2026-11-15), changed as each case needs."""

from __future__ import annotations

from oomph.machine import DriverState, Unknown
from oomph.machine.gpu import parse_driver
from oomph.units import GIB, MIB

from ..recordings import H200, h200


def test_recorded_gpu_is_parsed() -> None:
    driver = parse_driver(H200)
    (gpu,) = driver.gpus
    assert (driver.state, driver.version.known, driver.cuda.known) == (DriverState.READY, "580.159.04", "13.0")
    assert (gpu.name.known, gpu.compute_capability.known) == ("NVIDIA H200", "9.0")
    assert (gpu.total.known, gpu.used.known) == (143771 * MIB, 4418568192)
    assert (gpu.ecc.known, gpu.mig.known, gpu.throttle_reasons.known) == (True, False, ())
    assert gpu.processes.known is not None
    assert (gpu.processes.known[0].name.known, gpu.processes.known[0].used.known) == ("python3", 3764387840)


def test_missing_driver_and_missing_gpu_are_states() -> None:
    assert parse_driver({"state": "no driver", "reason": "not installed"}).state is DriverState.NO_DRIVER
    empty = {"state": "no gpu", "reason": "none", "driver": {"value": "1"}, "cuda": {"value": 12040}, "devices": []}
    assert parse_driver(empty).cuda.known == "12.4"


def test_processes_hidden_by_a_container_are_unknown() -> None:
    hidden = parse_driver(h200(processes={"value": []})).gpus[0].processes.value
    assert isinstance(hidden, Unknown)
    idle = h200(processes={"value": []}, memory={"value": {"total": 80 * GIB, "free": 79 * GIB, "used": GIB // 2}})
    assert parse_driver(idle).gpus[0].processes.value == ()


def test_rejected_queries_are_unknown_with_the_driver_s_message() -> None:
    gpu = parse_driver(h200(ecc={"error": "Not Supported"}, memory={"error": "Unknown Error"})).gpus[0]
    assert gpu.ecc.value == Unknown("Not Supported")
    assert gpu.total.value == Unknown("Unknown Error")


def test_only_throttle_reasons_that_reduce_speed_count() -> None:
    assert parse_driver(h200(throttle_reasons={"value": 0x01})).gpus[0].throttle_reasons.known == ()  # idle
    throttled = parse_driver(h200(throttle_reasons={"value": 0x24})).gpus[0]
    assert throttled.throttle_reasons.known == ("power cap", "hot GPU")
