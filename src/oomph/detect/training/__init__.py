"""Training of a detector: configuration, planning, the training loop and its files."""

from .._device import find_device
from ._config import TrainConfig, demo_config
from ._ema import Ema
from ._forecast import TrainForecast, forecast
from ._hyperparameters import Hyperparameters, parse_hyperparameters, read_hyperparameters
from ._optimizer import build_optimizer, freeze, parameter_groups
from ._progress import NoProgress, ProgressCallback, StepStats, TrainResult
from ._saved_config import SavedConfig, load_config
from ._schedule import Schedule, ScheduleStep, accumulation, set_lr, should_stop
from ._settings_file import FLAGS, change_settings, changed_settings, read_settings, settings_text
from ._teacher import read_teacher, with_saved_teacher
from ._train import TrainingData, read_data, train
from ._train_loss import TrainLoss
from .planning import SmallerNetwork, detection_job, predict_training, pruned_networks, smaller_sizes

__all__ = [
    "FLAGS",
    "Ema",
    "Hyperparameters",
    "NoProgress",
    "ProgressCallback",
    "SavedConfig",
    "Schedule",
    "ScheduleStep",
    "SmallerNetwork",
    "StepStats",
    "TrainConfig",
    "TrainForecast",
    "TrainLoss",
    "TrainResult",
    "TrainingData",
    "accumulation",
    "build_optimizer",
    "change_settings",
    "changed_settings",
    "demo_config",
    "detection_job",
    "find_device",
    "forecast",
    "freeze",
    "load_config",
    "parameter_groups",
    "parse_hyperparameters",
    "predict_training",
    "pruned_networks",
    "read_data",
    "read_hyperparameters",
    "read_settings",
    "read_teacher",
    "set_lr",
    "settings_text",
    "should_stop",
    "smaller_sizes",
    "train",
    "with_saved_teacher",
]
