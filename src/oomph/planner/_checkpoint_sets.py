"""Sets of modules to checkpoint, from none to all: where it saves the most memory for its time.

A knapsack over the module tree. For a price of a byte in seconds, a module is checkpointed as a whole, or the best is
done with its children, whichever gains more; rising prices give larger and larger sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ._step_profile import StepProfile

_PRICES = 40
_HIDDEN = 0.25  # how much the faster of device and launching still counts

Cost = Callable[[str], float]


def checkpoint_sets(profile: StepProfile, micro_batch: int) -> tuple[tuple[str, ...], ...]:
    """Return sets of module paths to checkpoint, each once, the empty one first."""
    children = _children(profile.modules)
    times = {path: profile.recompute_seconds(path, micro_batch) for path in profile.modules}
    scale = micro_batch / profile.settings.batch
    saved = {path: module.saved * scale for path, module in profile.modules.items()}
    sets: dict[tuple[str, ...], None] = {(): None}
    for on_device, launching in ((1.0, _HIDDEN), (_HIDDEN, 1.0)):
        cost = {path: on_device * device + launching * launch for path, (device, launch) in times.items()}
        for price in _prices(cost[path] / saved[path] for path in cost):
            gain = {path: price * saved[path] - cost[path] for path in cost}
            chosen: list[str] = []
            for root in children[""]:
                chosen += _best(root, children, gain)[1]
            sets[tuple(chosen)] = None
    return tuple(sets)


def _best(path: str, children: dict[str, list[str]], gain: dict[str, float]) -> tuple[float, list[str]]:
    """Return the largest gain below a path, and the modules to checkpoint for it."""
    total, chosen = 0.0, []
    for child in children[path]:
        child_gain, paths = _best(child, children, gain)
        total += child_gain
        chosen += paths
    return (gain[path], [path]) if gain[path] > total else (total, chosen)


def _children(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the nearest descendants of each path among the paths; those of "" have no ancestor."""
    known = dict.fromkeys(paths)
    children: dict[str, list[str]] = {path: [] for path in ("", *known)}
    for path in known:
        parent = path.rpartition(".")[0]
        while parent and parent not in known:
            parent = parent.rpartition(".")[0]
        children[parent].append(path)
    return children


def _prices(ratios: Iterable[float]) -> list[float]:
    """Return prices at which a set changes, at most a few dozen, slightly above each ratio."""
    ordered = sorted(set(ratios))
    step = max(len(ordered) // _PRICES, 1)
    return [ratio * 1.0001 for ratio in (*ordered[::step], *ordered[-1:])]
