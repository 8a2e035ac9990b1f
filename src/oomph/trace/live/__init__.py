"""Live programs: a training script that runs as it is, traced as if it ran on a GPU."""

from ._live import LiveTrace

__all__ = ["LiveTrace"]
