"""What oomph can't see or control of a command: one sentence per launcher and scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_CONTAINER_TOOLS = ("docker", "podman", "nerdctl")
_CONTAINER_COMMANDS = {"run", "exec", "start", "compose"}
_RANK_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch"}
_MPI_LAUNCHERS = {"mpirun", "mpiexec", "horovodrun"}


def describe_surroundings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return sentences about the limits of supervision for a command started here; mostly none."""
    return (*_about_command(argv), *_about_place(environ))


def _about_command(argv: Sequence[str]) -> Iterator[str]:
    program = Path(argv[0]).name if argv else ""
    words = set(argv[:4])
    if program in _CONTAINER_TOOLS and words & _CONTAINER_COMMANDS:
        yield (
            f"{program}: the container's processes belong to its daemon. Their memory is not in the Record, budget and "
            f"idle time don't apply (use {program} run --memory), SIGINT and SIGTERM are passed on by {program}, and "
            "after SIGKILL the container goes on."
        )
    elif program in {"srun", "salloc"}:
        yield (
            f"{program}: the tasks belong to Slurm, also on other nodes. Their memory is not in the Record, budget and "
            f"idle time don't apply (use --mem), and {program} passes signals on. To measure a task, use "
            "`srun oomph run -- …`."
        )
    elif program in {"ssh", "kubectl"} | _MPI_LAUNCHERS:
        yield f"{program}: only what runs on this machine below {program} is measured and limited."
    elif words & _RANK_LAUNCHERS or program in _RANK_LAUNCHERS:
        yield (
            "The ranks on this machine are measured, limited and stopped together; those on other machines are not "
            "seen, and end when their launcher notices."
        )


def _about_place(environ: Mapping[str, str]) -> Iterator[str]:
    if "TORCHELASTIC_RUN_ID" in environ or ("RANK" in environ and "WORLD_SIZE" in environ):
        yield (
            f"This is rank {environ.get('RANK', '?')} of {environ.get('WORLD_SIZE', '?')}: only this rank is measured "
            "and limited, and it is never started again alone."
        )
    elif "SLURM_JOB_ID" in environ:
        task = environ.get("SLURM_PROCID", "0")
        yield (
            f"Slurm job {environ['SLURM_JOB_ID']}, task {task}: Slurm's memory limit applies where its cgroup is "
            "visible, and Slurm may send SIGKILL without a message at the time limit."
        )
