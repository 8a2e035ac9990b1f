"""The zoo: named configurations that predictions are compared on, and their measurements on GPUs."""

from .configs import Config, configs
from .measurements import measurements
from .third_party import third_party

__all__ = ["Config", "configs", "measurements", "third_party"]
