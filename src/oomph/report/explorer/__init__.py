"""The plan explorer: a page with sliders over the predictions of a table. No torch."""

from ._explorer_page import explorer_page, save_explorer

__all__ = ["explorer_page", "save_explorer"]
