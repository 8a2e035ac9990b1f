from __future__ import annotations

import errno
import pickle
import subprocess
import sys

import pytest
import torch

from oomph.failures import FailureKind, classify_exception

from .texts import MEMORY, NOT_MEMORY, NUMERICS

FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free."
)


def message(text: str) -> str:
    """Return the message of an exception without its type."""
    return text.partition("Error: ")[2] or text


@pytest.mark.parametrize(
    ("kind", "text"),
    [(kind, text) for kind, _, text in MEMORY if text.startswith("RuntimeError: ")],
    ids=lambda value: str(value)[:50],
)
def test_runtime_errors_of_torch_are_classified(kind: FailureKind, text: str) -> None:
    finding = classify_exception(RuntimeError(message(text)))
    assert finding is not None
    assert finding.kind is kind


@pytest.mark.parametrize("text", [text for _, _, text in (*NOT_MEMORY, *NUMERICS)], ids=lambda text: text[:50])
def test_other_errors_are_not_classified(text: str) -> None:
    assert classify_exception(RuntimeError(message(text))) is None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("memory budget must be positive"),
        ValueError(FULL),
        KeyError("CUDA out of memory"),
        RuntimeError("out of memory budget of the plan"),
        RuntimeError("we never want to see CUDA out of memory here"),
        RuntimeError("the command ended with exit code 137"),
        RuntimeError("Killed"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)"),
        RuntimeError(""),
        AssertionError("MemoryError"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        OSError(errno.ENOSPC, "No space left on device", "last.pt"),
        KeyboardInterrupt(),
        StopIteration(),
    ],
    ids=repr,
)
def test_user_errors_are_never_taken_for_memory(error: BaseException) -> None:
    assert classify_exception(error) is None


def test_out_of_memory_type_of_torch_is_classified() -> None:
    finding = classify_exception(torch.OutOfMemoryError(FULL))
    assert finding is not None
    assert (finding.kind, finding.retryable) == (FailureKind.CUDA_OOM, True)
    assert finding.numbers["requested"] == 2 * 1024**3
    bare = classify_exception(torch.OutOfMemoryError("no details"))
    assert bare is not None
    assert bare.kind is FailureKind.CUDA_OOM


def test_hip_and_xpu_share_the_type_of_cuda() -> None:
    for word, kind in (("HIP", FailureKind.HIP_OOM), ("XPU", FailureKind.XPU_OOM)):
        finding = classify_exception(torch.OutOfMemoryError(FULL.replace("CUDA", word)))
        assert finding is not None
        assert finding.kind is kind


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (MemoryError(), FailureKind.MEMORY_ERROR, True),
        (MemoryError("std::bad_alloc"), FailureKind.BAD_ALLOC, True),
        (RuntimeError("could not create a primitive"), FailureKind.CPU_OOM, True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), FailureKind.ENOMEM, False),
        (OSError(errno.EMFILE, "Too many open files"), FailureKind.OPEN_FILES, False),
        (OSError(errno.ENOSPC, "No space left on device", "/dev/shm/torch_1"), FailureKind.SHM_FULL, False),
        (OSError("[WinError 1455] The paging file is too small"), FailureKind.COMMIT_LIMIT, False),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), FailureKind.WORKER_KILLED, False),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            FailureKind.LIBRARY_OOM,
            True,
        ),
    ],
    ids=repr,
)
def test_kind_decides_whether_a_step_is_retryable(error: BaseException, kind: FailureKind, retryable: bool) -> None:  # noqa: FBT001
    finding = classify_exception(error)
    assert finding is not None
    assert (finding.kind, finding.retryable) == (kind, retryable)


def chained(outer: BaseException, inner: BaseException, *, explicit: bool) -> BaseException:
    try:
        try:
            raise inner  # noqa: TRY301  raising is what is tested
        except BaseException as caught:
            if explicit:
                raise outer from caught
            raise outer  # noqa: B904  the implicit context is what is tested
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_explicit_cause_is_followed() -> None:
    finding = classify_exception(chained(ValueError("the forward failed"), torch.OutOfMemoryError(FULL), explicit=True))
    assert finding is not None
    assert finding.kind is FailureKind.CUDA_OOM


def test_error_in_a_user_s_handler_is_not_memory() -> None:
    assert classify_exception(chained(KeyError("x"), torch.OutOfMemoryError(FULL), explicit=False)) is None
    assert (
        classify_exception(chained(RuntimeError("shape mismatch"), torch.OutOfMemoryError(FULL), explicit=False))
        is None
    )


def test_implicit_context_of_torch_is_followed() -> None:
    wrapper = type("BackendCompilerFailed", (RuntimeError,), {"__module__": "torch._dynamo.exc"})
    assert (
        classify_exception(chained(wrapper("backend raised"), torch.OutOfMemoryError(FULL), explicit=False)) is not None
    )
    silenced = chained(wrapper("x"), torch.OutOfMemoryError(FULL), explicit=False)
    silenced.__suppress_context__ = True
    assert classify_exception(silenced) is None


def test_circular_causes_end() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify_exception(first) is None


def test_unusual_exceptions_are_handled() -> None:
    class MuteError(RuntimeError):
        exceptions = 5

        def __str__(self) -> str:
            raise ZeroDivisionError

    assert classify_exception(MuteError()) is None
    group = type("Group", (Exception,), {"exceptions": (KeyError("x"), torch.OutOfMemoryError(FULL))})()
    finding = classify_exception(group)
    assert finding is not None
    assert finding.kind is FailureKind.CUDA_OOM


def test_error_from_a_worker_is_classified_by_its_last_line() -> None:
    def from_worker(line: str) -> RuntimeError:
        return RuntimeError(
            "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            f'  File "data.py", line 3, in __getitem__\n    # CUDA out of memory. Tried to allocate, once\n{line}\n'
        )

    assert classify_exception(from_worker("RuntimeError: stack expects each tensor to be equal size")) is None
    finding = classify_exception(
        from_worker("RuntimeError: " + message({name: text for _, name, text in MEMORY}["Linux under a limit"]))
    )
    assert finding is not None
    assert finding.kind is FailureKind.CPU_OOM


def test_finding_can_be_pickled() -> None:
    finding = classify_exception(torch.OutOfMemoryError(FULL))
    assert pickle.loads(pickle.dumps(finding)) == finding  # noqa: S301  our own


def test_finding_keeps_no_exception_alive() -> None:
    finding = classify_exception(chained(RuntimeError("x"), torch.OutOfMemoryError(FULL), explicit=True))
    assert finding is not None
    assert not any(isinstance(value, BaseException) for value in vars(finding).values())


@pytest.mark.medium
def test_allocators_under_an_address_space_limit() -> None:
    code = """
import torch
from oomph.failures import classify_exception

for fail in (lambda: torch.empty(1 << 40), lambda: bytearray(1 << 42), lambda: torch.ones(2, 3) @ torch.ones(2, 3)):
    try:
        fail()
    except BaseException as error:
        finding = classify_exception(error)
        print(finding and f"{finding.kind.value} {finding.retryable}")
"""
    command = ["prlimit", f"--as={16 << 30}", sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == ["cpu-out-of-memory True", "memory-error True", "None"]


_LOADER = """
import os, signal, time, traceback, torch
from oomph.failures import read_log, classify_exception

class Data(torch.utils.data.Dataset):
    def __init__(self, end):
        self.end = end
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 3:
            time.sleep(0.3)  # until the batches before have arrived
            self.end()
        return torch.zeros(3)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def left():
    os._exit(1)

def wrong():
    torch.ones(2, 3) @ torch.ones(2, 3)

def full():
    torch.empty(1 << 50)

if __name__ == "__main__":
    for end in (killed, left, wrong, full):
        try:
            list(torch.utils.data.DataLoader(Data(end), num_workers=1, batch_size=1))
        except Exception as error:
            found = classify_exception(error)
            print(end.__name__, found and found.kind.value, read_log(traceback.format_exc())[0].kind.value)
"""


@pytest.mark.medium
def test_loader_workers_that_die_in_several_ways() -> None:
    process = subprocess.run([sys.executable, "-c", _LOADER], capture_output=True, text=True, check=True)
    killed, left, wrong, full = process.stdout.splitlines()
    assert killed == "killed worker-killed worker-killed"
    assert left == "left worker-exited worker-exited"
    assert wrong == "wrong None shape"
    assert full == "full cpu-out-of-memory impossible-size"  # the guard needs the allocator's kind


@pytest.mark.medium
def test_failures_import_no_torch() -> None:
    code = "import sys, oomph.failures; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
