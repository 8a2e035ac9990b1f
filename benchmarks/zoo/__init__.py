"""The configurations that predictions are compared on, by name, and what was measured of them."""

from .configs import Config, configs
from .truths import truths

__all__ = ["Config", "configs", "truths"]
