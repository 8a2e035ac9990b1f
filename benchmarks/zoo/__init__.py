"""The configurations that predictions are compared on: models, batches, losses, optimizers and settings by name."""

from .configs import Config, configs

__all__ = ["Config", "configs"]
