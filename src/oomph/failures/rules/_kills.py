"""Rules for kills by the kernel or a scheduler, and for notebooks that see only the end."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import STATUS, rule

# What a shell prints before "Killed": the line of a script, or a job and its process.
_SHELL = r"(?:\S*: line \d+:\s+\d+\s+|\[\d+\][+-]?\s+(?:[+-]\s+)?(?:\d+\s+)?|\s+|\d+ )?"
_COMMAND = r"(?:\./|python|nohup|bash|sh|accelerate|torchrun|deepspeed)"
_BY = r"(?:terminated|killed|exited) (?:with|by|on) "


def _spaced(status: str) -> tuple[str, ...]:
    """Return an exit status after the words before it, in the spacings that programs use."""
    return tuple(
        f"{word}{space}{status}"
        for word in ("ode", "tatus")
        for space in (" ", ": ", " = ", "=", ":", ":    ", "  : ", " : ", ":      ")
    )


KILL_RULES = (
    rule(FailureKind.TIME_LIMIT, "job killed: walltime"),
    rule(FailureKind.TIME_LIMIT, "TERM_RUNLIMIT"),
    rule(FailureKind.THREAD_LIMIT, "TERM_THREADLIMIT"),
    rule(FailureKind.THREAD_LIMIT, "TERM_PROCESSLIMIT"),
    rule(FailureKind.SCHEDULER_KILL, "TERM_SWAP"),
    rule(FailureKind.SCHEDULER_KILL, "killed due to memory pressure"),
    rule(FailureKind.SCHEDULER_KILL, "RayOutOfMemoryError"),
    rule(FailureKind.SCHEDULER_KILL, "of the memory on node", r"More than \d+% of the memory on node"),
    rule(FailureKind.SCHEDULER_KILL, "killed by YARN for exceeding"),
    rule(FailureKind.SCHEDULER_KILL, "memory limits", r"running beyond (?:physical|virtual) memory limits"),
    rule(FailureKind.SCHEDULER_KILL, "Container killed due to memory usage"),
    rule(FailureKind.SCHEDULER_KILL, "cgroup out-of-memory handler"),
    rule(
        FailureKind.SCHEDULER_KILL,
        "memory limit",
        r"(?:job|step|Job|Step)\b.{0,80}exceeded (?:job |step )?memory limit",
    ),
    rule(FailureKind.SCHEDULER_KILL, "emory limit of", r"[Mm]emory limit of [\d.]+ ?\w+ exceeded"),
    rule(FailureKind.SCHEDULER_KILL, "Memory quota exceeded"),
    rule(FailureKind.SCHEDULER_KILL, "oom-kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    rule(FailureKind.SCHEDULER_KILL, "oom_kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    rule(FailureKind.SCHEDULER_KILL, "memory limit", r"slurmstepd: error: .*[Ee]xceeded (?:job|step) memory limit"),
    rule(FailureKind.SCHEDULER_KILL, "OUT_OF_MEMORY", r"(?:State|STATE)[\s:=|]+OUT_OF_MEMORY"),
    rule(FailureKind.SCHEDULER_KILL, "OUT_OF_MEMORY", r"\bOUT_OF_MEMORY\s+\d+:\d+"),
    rule(FailureKind.SCHEDULER_KILL, "OUT_OF_ME+"),
    rule(FailureKind.SCHEDULER_KILL, "Out Of Memory", r"srun: error: .*\btasks? .*Out Of Memory"),
    rule(FailureKind.SCHEDULER_KILL, "exceeded limit", r"PBS: job killed: \w*mem \d+\w* exceeded limit"),
    rule(FailureKind.SCHEDULER_KILL, "TERM_MEMLIMIT"),
    rule(FailureKind.SCHEDULER_KILL, "exceeded request_memory"),
    rule(FailureKind.SCHEDULER_KILL, "gone over", r"[Jj]ob has gone over (?:cgroup )?memory limit"),
    rule(FailureKind.SCHEDULER_KILL, "exceeded a memory resource limit"),
    rule(FailureKind.SCHEDULER_KILL, "h_vmem", r"exceed\w* .{0,40}h_vmem"),
    rule(FailureKind.SCHEDULER_KILL, "low on resource: memory"),
    # `docker inspect` has it for every container, mostly with "false".
    rule(FailureKind.SCHEDULER_KILL, "OOMKilled", r"(?<!State\.)OOMKilled(?![\"']?\s*[:=]?\s*(?:[Ff]alse|0)\b)"),
    rule(FailureKind.SCHEDULER_KILL, ".State.OOMKilled", r"\.State\.OOMKilled[^\n]*\n\s*true\b"),
    rule(FailureKind.SCHEDULER_KILL, "node running low on memory"),
    rule(FailureKind.OOM_KILL, "emory: Kill", r"(?:[Oo]ut of memory|cgroup out of memory): Kill(?:ed)? process \d+"),
    rule(FailureKind.OOM_KILL, "emory cgroup out of memory"),
    rule(FailureKind.OOM_KILL, "oom-kill:constraint="),
    rule(FailureKind.OOM_KILL, "oom_reaper: reaped process"),
    rule(
        FailureKind.OOM_KILL,
        "killed by the OOM killer",
        r"^(?!.*\b[Ii]f\b[^.\n]*killed by the OOM killer).*killed by the OOM killer",
    ),
    rule(FailureKind.OOM_KILL, "ran out-of-memory", r"replica \S+ ran out-of-memory"),
    rule(FailureKind.OOM_KILL, "with result 'oom-kill'"),
    rule(FailureKind.OOM_KILL, "using all available RAM"),
    rule(FailureKind.OOM_KILL, "tried to allocate more memory than is available"),
    rule(FailureKind.OOM_KILL, "terminated program cc1", r"Killed signal terminated program cc1(?:plus)?\b"),
    rule(FailureKind.OOM_KILL, "systemd-oomd", r"systemd-oomd.*[Kk]illed"),
    rule(
        FailureKind.OOM_KILL,
        "Killed",
        rf"^{_SHELL}Killed(?:: 9)?(?:\s{{2,}}\S.*|\s+{_COMMAND}\b.*|\s*\(core dumped\).*)?\s*$",
    ),
    # Glued to a progress bar.
    rule(FailureKind.OOM_KILL, "Killed", r"(?:[\]%|]|\d(?:s|it/s|s/it)?)Killed\s*$"),
    rule(FailureKind.OOM_KILL, "Killed", r"(?:says?|prints?|shows?|printed|said|see) (?:\w+ )?[\"'`“]Killed[.\"'`”]"),
    rule(FailureKind.OOM_KILL, "Killed", r"srun: error: .*: tasks? [\d,-]+: Killed"),
    rule(FailureKind.OOM_KILL, "zsh: killed", r"(?<!\w)zsh: killed\s"),
    rule(FailureKind.OOM_KILL, "killed", r"^\[\d+\][+-]?\s+[+-]?\s*\d*\s*killed\s"),
    rule(FailureKind.OOM_KILL, "sending SIG", r"\b(?:earlyoom|nohang)\b.*sending SIG(?:TERM|KILL) to process"),
    rule(FailureKind.OOM_KILL, "signal KILL", r"(?:through|by|with) signal KILL\b"),
    rule(
        FailureKind.OOM_KILL,
        "ignal 9",
        r"(?:exited on|terminated by|killed by|interrupted by|died (?:with|from)|got|received|with) signal 9\b",
    ),
    rule(FailureKind.OOM_KILL, "ignal: 9", r"(?:exited|terminated|killed|died|failed|status).{0,40}signal: 9\b"),
    *(rule(FailureKind.OOM_KILL, words, STATUS + r"137\b") for words in _spaced("137")),
    rule(FailureKind.OOM_KILL, "Exited (137)"),
    rule(FailureKind.OOM_KILL, "echo $?", r"echo \$\?\s*\n\s*137\b"),
    rule(FailureKind.OOM_KILL, "Signal 9 (SIGKILL)"),
    rule(
        FailureKind.OOM_KILL,
        "SIGKILL",
        rf"(?:{_BY}(?:signal )?|died with <Signals\.|signal: 9,? ?\(?|received (?:signal )?|due to )\s*SIGKILL",
    ),
    *(rule(FailureKind.OOM_KILL, words, STATUS + r"-9\b") for words in _spaced("-9")),
    # -9 of a process in a container, as one byte.
    *(rule(FailureKind.OOM_KILL, words, STATUS + r"247\b") for words in _spaced("247")),
    # After the rules above, which name the reason: a notebook only sees that its process has ended.
    rule(
        FailureKind.NOTEBOOK_DIED,
        "ernel",
        r"[Kk]ernel (?:for .{1,120} )?(?:appears to have died|has died|[Cc]rashed while executing)",
    ),
    rule(FailureKind.NOTEBOOK_DIED, "DeadKernelError"),
    rule(FailureKind.NOTEBOOK_DIED, "Dead kernel", r"^\W{0,4}Dead kernel\b"),
    rule(FailureKind.NOTEBOOK_DIED, "session crashed"),
    rule(FailureKind.NOTEBOOK_DIED, "KernelRestarter: restarting kernel"),
    rule(FailureKind.NOTEBOOK_DIED, "kernel", r"WARNING\W+kernel \S+ restarted"),
    rule(FailureKind.NOTEBOOK_DIED, "Canceled future for execute_request"),
    rule(FailureKind.NOTEBOOK_DIED, "Kernel died", r"^(?:\S+ )?Kernel died(?! before)(?:[.: ]|$)"),
)
