"""The zoo: named configurations that predictions are compared on, and their measurements on GPUs."""

from .configs import Config, configs
from .measurements import measurements

__all__ = ["Config", "configs", "measurements"]
