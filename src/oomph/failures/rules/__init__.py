"""Rules that recognize failures in a text: words that always occur, and a pattern around them.

The words are searched first, because that is fast in long logs. The pattern then decides.
"""

from ._families import RULES
from ._last_resort import LAST_RESORT_RULES
from ._plain_errors import PLAIN_ERRORS
from ._rule import Rule

__all__ = ["LAST_RESORT_RULES", "PLAIN_ERRORS", "RULES", "Rule"]
