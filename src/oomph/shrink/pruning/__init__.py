"""Structured pruning: channels are removed, so that training, inference and files need less."""

from ._detector import prune_detector, prune_network
from ._prune import PrunedModel, count_operations, load_pruned, prune, save_pruned
from ._request import PRUNE_FILE, PruneRequest

__all__ = [
    "PRUNE_FILE",
    "PruneRequest",
    "PrunedModel",
    "count_operations",
    "load_pruned",
    "prune",
    "prune_detector",
    "prune_network",
    "save_pruned",
]
