"""How notebooks show objects of oomph: as the reports that commands print, in HTML.

This module is the one place where an early layer calls a later one, `report`, when a notebook shows an object. The
classes that are shown are defined in layers that may not import `report`. The alternative, a function that `report`
registers, would show HTML only if `report` happened to be imported before.
"""

from __future__ import annotations


class HtmlRepr:
    """Mixin for objects that notebooks show as HTML; `repr()` stays what it is."""

    def _repr_html_(self) -> str:
        from .report import to_html  # noqa: PLC0415  a later layer, see above

        return to_html(self)
