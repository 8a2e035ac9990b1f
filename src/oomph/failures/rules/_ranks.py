"""Rules for other ranks."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import rule

RANK_RULES = (
    rule(FailureKind.RANK_TIMEOUT, "waiting for clients", r"Timed out after \d+ seconds waiting for clients"),
    rule(FailureKind.PEER_DIED, "ncclRemoteError"),
    rule(FailureKind.NCCL_ERROR, "ncclSystemError"),
    rule(FailureKind.NCCL_ERROR, "ncclInternalError"),
    rule(FailureKind.NCCL_ERROR, "ncclInvalidUsage"),
    rule(FailureKind.NCCL_ERROR, "ncclUnhandledCudaError"),
    rule(FailureKind.NCCL_ERROR, "Duplicate GPU detected"),
    rule(
        FailureKind.NCCL_ERROR, "unhandled system error", r"NCCL.*unhandled system error|unhandled system error.*NCCL"
    ),
    rule(FailureKind.NCCL_ERROR, "unhandled cuda error", r"NCCL.*unhandled cuda error|unhandled cuda error.*NCCL"),
    rule(FailureKind.NCCL_ERROR, "NCCL", r"NCCL.{0,120}(?:internal error|invalid usage|invalid argument)"),
    rule(FailureKind.NCCL_ERROR, "NCCL WARN", r"NCCL WARN.{0,40}(?:[Cc]uda failure|Call to \w+ failed|[Ff]ailed)"),
    rule(FailureKind.RANK_TIMEOUT, "collective operation timeout"),
    rule(FailureKind.RANK_TIMEOUT, "milliseconds before timing out"),
    rule(FailureKind.RANK_TIMEOUT, "Timed out waiting", r"Timed out waiting \d+ms for (?:recv|send) operation"),
    rule(FailureKind.RANK_TIMEOUT, "wait timeout after", r"wait timeout after \d+ms, keys: "),
    rule(
        FailureKind.RANK_TIMEOUT,
        "timed out in ",
        r"[Ss]ocket.*timed out|Timed? ?out .*monitoredBarrier|monitoredBarrier.*timed out",
    ),
    rule(FailureKind.RANK_TIMEOUT, "monitoredBarrier", r"monitoredBarrier"),
    rule(FailureKind.PEER_DIED, "Connection closed by peer ["),
    rule(FailureKind.PEER_DIED, "Connection reset by peer", r"gloo|NCCL|TCPStore|[Rr]ank|Dist\w*Error"),
    rule(FailureKind.PEER_DIED, "gloo/transport/"),
    rule(FailureKind.PEER_DIED, "NCCL communicator was aborted"),
    rule(FailureKind.PEER_DIED, "ChildFailedError"),
    rule(FailureKind.PEER_DIED, "Sending process", r"Sending process \d+ closing signal SIG"),
    rule(FailureKind.PEER_DIED, "failed to recv, got 0 bytes"),
    rule(FailureKind.PEER_DIED, "recvBytes", r"TCPStore.*recvBytes|recvBytes failed"),
)
