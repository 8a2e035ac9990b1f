from __future__ import annotations

import pytest

from oomph.failures import FailureKind, classify_exception, read_log


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("renderer: error: out of memory", FailureKind.MEMORY_ERROR),
        ("mylib.errors.OutOfMemoryException: pool 3", FailureKind.MEMORY_ERROR),
        ("Fatal: CUDA allocator: out of device memory", FailureKind.FRAMEWORK_OOM),
        ("Out of memory", FailureKind.MEMORY_ERROR),
        ("[OOM] GPU 0 out of memory at iteration 300, exiting.", FailureKind.FRAMEWORK_OOM),
        ("Failed to allocate 734003200 bytes", FailureKind.MEMORY_ERROR),
        ("error: cannot allocate memory for thread-local data", FailureKind.MEMORY_ERROR),
        ("virtual memory exhausted: Cannot allocate memory", None),
        ("ERROR not enough GPU memory for the model", FailureKind.FRAMEWORK_OOM),
        ("Job 9: exceeded requested memory limit", FailureKind.SCHEDULER_KILL),
        ("worker 3 was OOM-killed", FailureKind.OOM_KILL),
    ],
)
def test_unknown_libraries_are_recognized(text: str, kind: FailureKind | None) -> None:
    findings = read_log(f"epoch 1 loss 0.3\n{text}\n")
    assert findings
    assert findings[0].cause.is_memory
    assert kind in {None, findings[0].kind}


@pytest.mark.parametrize(
    "text",
    [
        "if you run out of memory, reduce the batch size",
        "Note: insufficient memory can be avoided with --low-memory",
        "To avoid out of memory errors, use gradient checkpointing.",
        "If this prints\nOut Of Memory, ask for more.",
        "0 out of memory events",
        "memory.events: oom 0 oom_kill 0",
        "How do I fix 'out of memory'?",
        "This may exceed the memory limit on small GPUs",
        "INFO memory limit: 16 GiB",
        "checking for not enough memory ... no",
        "the OOM killer score of this process is 300",
        "WARNING: when memory is exhausted, batches are split",
    ],
)
def test_prose_is_not_a_failure(text: str) -> None:
    assert [finding.kind for finding in read_log(f"epoch 1\n{text}\nepoch 2\n") if finding.cause.is_memory] == []


@pytest.mark.parametrize(
    "text", ["not enough memory slots", "failed to allocate 12 bytes of my arena", "Out of memory"]
)
def test_general_wordings_of_a_user_are_not_classified(text: str) -> None:
    assert classify_exception(RuntimeError(text)) is None
