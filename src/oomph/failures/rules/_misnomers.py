"""Rules for messages that mention memory but mean something else, and for pinned memory."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import rule

MISNOMER_RULES = (
    rule(FailureKind.VALUE_ASSERT, "Assertion `", r"Assertion `[^`\n]*(?:input_val|target_val|>= ?zero|<= ?one)"),
    rule(
        FailureKind.VALUE_ASSERT, "should be between 0 and 1", r"all elements of (?:input|target) should be between 0"
    ),
    # Messages that mention memory but mean something else.
    rule(FailureKind.BROKEN_LIBRARY, "cannot allocate memory in static TLS block"),
    rule(FailureKind.ILLEGAL_ACCESS, "illegal memory access"),
    rule(FailureKind.ILLEGAL_ACCESS, "misaligned address"),
    rule(FailureKind.KERNEL_RESOURCES, "out of resource: shared memory"),
    rule(FailureKind.KERNEL_RESOURCES, "too many resources requested for launch"),
    rule(FailureKind.DEVICE_ASSERT, "device-side assert triggered"),
    rule(FailureKind.DEVICE_ASSERT, "Assertion `", r"^.*\.cu(?:h)?:\d+.*(?:block|thread): \[.*Assertion `"),
    # What `oomph run` printed when it stopped a command.
    rule(FailureKind.HOST_BUDGET, "stopped because it exceeded its RAM budget"),
    rule(FailureKind.HOST_FULL, "stopped because RAM was about to run out"),
    rule(FailureKind.HANG, "The command hung and was stopped"),
    # Pinned memory: messages of the driver, but raised in the pin-memory thread.
    rule(
        FailureKind.PINNED,
        "in pin memory thread",
        r"in pin memory thread for device[\s\S]{0,4000}?(?:out of memory|OS call failed)",
    ),
    rule(FailureKind.PINNED, "pinned memory", r"(?i)(?:fail|unable|cannot|could not)[^\n]{0,60}pinned memory"),
    rule(FailureKind.PINNED, "Pin memory thread exited unexpectedly"),
    rule(FailureKind.PINNED, " ibv_", r"ibv_\w+ failed with error Cannot allocate memory"),
    rule(
        FailureKind.PINNED,
        "CachingHostAllocator",
        r"out of memory[^\n]*CachingHostAllocator|CachingHostAllocator[^\n]*out of memory",
    ),
    rule(FailureKind.PINNED, "bytes on host", r"failed to alloc \d+ bytes on host"),
    rule(FailureKind.PINNED, "pinned host memory", r"could not allocate pinned host memory"),
    rule(FailureKind.PINNED, "cudaHostAlloc", r"cudaHost(?:Alloc|Register).{0,80}(?:fail|out of memory|error)"),
    rule(FailureKind.PINNED, "cudaHostRegister", r"cudaHost(?:Alloc|Register).{0,80}(?:fail|out of memory|error)"),
)
