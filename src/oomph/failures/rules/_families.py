"""All rules, family by family: if two rules match a line, the first one counts."""

from __future__ import annotations

from ._device import DEVICE_RULES
from ._host import HOST_RULES
from ._kills import KILL_RULES
from ._last_resort import LAST_RESORT_RULES
from ._localized import LOCALIZED_RULES
from ._misnomers import MISNOMER_RULES
from ._numerics import NUMERICS_RULES
from ._other import OTHER_RULES
from ._ranks import RANK_RULES
from ._rule import Rule
from ._workers import WORKER_RULES

RULES: tuple[Rule, ...] = (
    *MISNOMER_RULES,
    *DEVICE_RULES,
    *HOST_RULES,
    *WORKER_RULES,
    *KILL_RULES,
    *RANK_RULES,
    *NUMERICS_RULES,
    *OTHER_RULES,
    *LOCALIZED_RULES,
    *LAST_RESORT_RULES,
)
