"""The plan explorer: a page with sliders over the predictions of a table. No torch."""

from ._explorer_page import Explorer

__all__ = ["Explorer"]
