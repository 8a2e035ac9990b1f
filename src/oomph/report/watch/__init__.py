"""The view of `oomph watch`: a screen on a terminal, one line per sample elsewhere. Imports no textual."""

from ._lines import WatchLines
from ._run import ScreenExit, can_show_screen, run_screen

__all__ = ["ScreenExit", "WatchLines", "can_show_screen", "run_screen"]
