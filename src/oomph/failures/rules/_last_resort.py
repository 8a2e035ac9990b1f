"""Rules of last resort: general wordings of running out of memory, for libraries that no other rule knows.

Prose and advice say the same words ("if you run out of memory, …"), so the text before them on the line must be free of
words that only people use.
"""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import Rule, rule

_PROSE_WORDS = (
    r"[Ii]f|[Tt]o (?:avoid|prevent)|[Aa]void|[Pp]revent\w*|[Tt]ip|[Hh]int|[Nn]ote|may|might|can|would|should",
    r"handl\w+|never|no|without|zero|check\w*|catch\w*|except|fix\w*|how|why|because|when",
    r"(?<!GPU )(?<!device )(?<!rank )0(?= (?:out|oom|OOM))",
    r"before|until|unless|instead|like|e\.g|about|[Dd]id|[Dd]oes|[Cc]ould it",
    r"[Tt]ry(?:ing)? (?:\w+ ){0,2}\d+",  # a search for the largest batch
    r"[Ss]kipping tactic",  # TensorRT tries another one
)
_COMMENT = r"(?<=\S) +# "  # behind code or a setting
_PROSE = rf"(?:\b(?:{'|'.join(_PROSE_WORDS)})\b|\?|{_COMMENT})"
_GPU = r"(?:GPU|CUDA|[Cc]uda|[Dd]evice|VRAM|vram|HIP|TPU|hbm|HBM)"
_ERROR = r"(?:[Ee]rror|ERROR|Exception|FATAL|[Ff]atal|CRITICAL|panic\w*|terminat\w+|abort\w*|fail\w*)"
_NOT_AFTER = r"(?! (?:budget|events?|issues?|errors? (?:can|may|occur)|here|killer|score))"
_OUT_OF_MEMORY = rf"[Oo]ut[ -][Oo]f[ -](?:\w+ )?[Mm]emory\b{_NOT_AFTER}"
_FAILED = r"(?:[Ff]ailed|[Uu]nable|[Cc]annot|[Cc]an't|[Cc]ould ?n[o']t|[Cc]ould not|[Ee]rror)"
_ALLOCATION = rf"{_FAILED} (?:in |to |while )?(?:allocat\w+|alloc|reserv\w+|mmap)"
_WORDINGS = (
    rf"{_ALLOCATION} (?:\S+ ){{0,4}}?[\d.,]+ ?(?:bytes|[KMGT]i?B|[KMG])\b",
    rf"{_ALLOCATION} (?:\w+ ){{0,3}}?(?:memory|buffer)\b",
    r"(?:[Nn]ot enough|[Ii]nsufficient) (?:\w+ ){0,3}?memory\b",
    r"[Mm]emory (?:is )?exhausted\b",
    r"[Mm]emory allocation (?:\w+ ){0,4}?(?:failed|failure|error)",
)
_LIMITS = (
    r"(?:[Ee]xceed\w*|over) (?:\w+ ){0,5}?memory (?:limit|quota|cap)\w*",
    r"[Mm]emory (?:limit|quota) (?:\S+ ){0,5}?(?:exceeded|reached)",
    r"[Mm]emory usage (?:\S+ ){0,6}?exceed\w* (?:\S+ ){0,3}?(?:limit|quota)",
)
_END = (
    r"(?:[.!:]|\s*$|[,;] (?:falling|aborting|exiting|stopping|retry)| (?:while|allocating|trying|at|during|error\s*$))"
)
# An error says so, or nothing else is on the line.
_RAISED_WORDINGS = (
    rf"\b{_ERROR}\b(?:(?!{_PROSE})[^\n]){{0,120}}?{_OUT_OF_MEMORY}",
    rf"(?<![^\s\W])(?<![a-z] )(?<![a-z], ){_OUT_OF_MEMORY}{_END}",
    rf"{_OUT_OF_MEMORY}\W{{1,3}}(?:[Aa]borting|[Ee]xiting|[Kk]illed|[Tt]erminat\w+)",
    r"[\w.:]*OutOf(?:\w*)Memory\w*(?::|\s*$)",
)
_NO_KILL = r"(?![-_ ]?(?:\w+[:=] ?|count:? |events?:? )?0\b)(?![\"']?\s*[:=]\s*(?:0|[Ff]alse|null|None)\b)"
_ITS_KILLER = r"(?<!\b[Tt]he )(?:OOM|oom)[-_ ]?[Kk]iller(?! (?:score|adj))"  # "The OOM killer there is trigger-happy"
_KILLS = rf"(?:\b(?:OOM|oom)[-_ ]?[Kk]ill(?:ed)?\b|\b{_ITS_KILLER}\b){_NO_KILL}"


def _line(core: str, *, on_gpu: bool = False) -> str:
    """Return a pattern for the core in a line without words of prose before it, and with or without a GPU."""
    gpu = rf"(?=[^\n]{{0,400}}\b{_GPU})" if on_gpu else ""
    return rf"^{gpu}(?:(?!{_PROSE})[^\n]){{0,300}}?(?:{core})"


def _rules(words: str, wordings: tuple[str, ...]) -> tuple[Rule, Rule]:
    """Return the rule for lines that name the GPU, and the one for all others."""
    core = "|".join(wordings)
    return (
        rule(FailureKind.FRAMEWORK_OOM, words, _line(core, on_gpu=True)),
        rule(FailureKind.MEMORY_ERROR, words, _line(core)),
    )


# Rare words, because lines of healthy logs mention memory too, and a pattern is slow.
_KINDS = ("", "GPU ", "device ", "host ", "system ", "video ", "CUDA ", "graphics ", "free ", "available ")
_OUT_WORDS = ("ut of Memory", "ut Of Memory", "out-of-memory", "OutOf", *(f"ut of {kind}memory" for kind in _KINDS))
_WORDS = (
    "ailed to alloc",
    "nable to alloc",
    "annot alloc",
    "an't alloc",
    "ot alloc",
    "ror allocating",
    "to reserve",
    "emory exhausted",
    "emory is exhausted",
    "emory allocation",
    *(f"{start}{kind}memory" for start in ("nough ", "nsufficient ") for kind in _KINDS),
)
_LIMIT_WORDS = ("memory limit", "emory limit", "memory quota", "memory cap", "emory usage")
_KILL_WORDS = ("OOM-kill", "OOM kill", "OOM Kill", "OOMKill", "oom-kill", "oom_kill", "oom kill")

LAST_RESORT_RULES: tuple[Rule, ...] = (
    *(general for words in _OUT_WORDS for general in _rules(words, _RAISED_WORDINGS)),
    *(general for words in _WORDS for general in _rules(words, _WORDINGS)),
    *(rule(FailureKind.SCHEDULER_KILL, words, _line("|".join(_LIMITS))) for words in _LIMIT_WORDS),
    *(rule(FailureKind.OOM_KILL, words, _line(_KILLS)) for words in _KILL_WORDS),
)
