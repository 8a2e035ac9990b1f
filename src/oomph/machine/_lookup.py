"""Finding a GPU or a cloud machine by the name somebody typed: "3060", "rtx3060 12gb", "A100-80", "AWS P8"."""

from __future__ import annotations

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from ..errors import AmbiguousName, UnknownName
from ..units import GIB
from ._catalog import CloudMachine, GpuSpec, clouds, gpus

_PROVIDERS = {
    "aws": "aws",
    "amazon": "aws",
    "gcp": "gcp",
    "google": "gcp",
    "azure": "azure",
    "microsoft": "azure",
}

# Words that most people leave out. What they call "3060" is never the Ti or the laptop, but may be any memory size.
_LINES = {"geforce", "rtx", "gtx", "quadro", "tesla", "titan", "jetson", "radeon", "rx", "instinct"}
_FORMS = {"pcie", "sxm", "sxm2", "sxm4", "sxm5", "hbm2", "hbm3"}
_EDITIONS = {"blackwell", "edition", "workstation", "server", "maxq"}
# Words that say nothing about which GPU is meant, whatever its name.
_EMPTY = {"gpu", "graphics", "generation"}
_SILENT = _LINES | _FORMS | _EDITIONS | _EMPTY | {"nvidia", "amd", "apple"}
_MEMORY = re.compile(r"\d+(gb|gib|g)")
_SHOWN = 5
_ALIKE = 0.5


def find_gpu(name: str) -> GpuSpec:
    """The GPU of that name, however it is spelled.

    Raises:
        AmbiguousName: several GPUs of different size or kind have it.
        UnknownName: none has; the error knows the nearest.
    """
    matches = _meant(name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(name, [gpu.name for gpu in matches])
    raise _unknown(f"there is no GPU {name!r}", name, [gpu.name for gpu in gpus()])


def _meant(name: str) -> list[GpuSpec]:
    """The GPUs that a name may mean; one that has exactly this name is the only one."""
    wanted = _words(name)
    exact = _by_alias().get(_key(name))
    # The key forgives the line: "Tesla T4" is the T4, but a "Tesla 4090" is not the GeForce.
    if exact is not None and wanted & _LINES <= _known(exact):
        return [exact]
    return [gpu for gpu in gpus() if _is_meant(wanted, gpu)]


def find_cloud(name: str) -> CloudMachine:
    """The cloud machine of that name; the provider's name may stand before it.

    Raises:
        AmbiguousName: it is a family of several machines.
        UnknownName: there is none; the error knows the nearest.
    """
    provider, text = _split_provider(name)
    wanted = _squeeze(text)
    offered = [machine for machine in clouds() if provider in {None, machine.provider}]
    # "aws a100": the machines of that provider which have it, of whatever size and form.
    asked = {gpu.name for gpu in gpus() if provider is not None and _is_meant(_words(text), gpu)}
    tests: tuple[Callable[[CloudMachine], bool], ...] = (
        lambda machine: wanted in {_squeeze(machine.name), _squeeze(machine.name).removeprefix("standard")},
        lambda machine: wanted == _squeeze(_family_name(machine)),
        lambda machine: find_gpu(machine.gpu).name in asked,
    )
    for test in tests:
        found = [machine for machine in offered if test(machine)]
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(name, [machine.name for machine in found])
    raise _unknown(f"there is no cloud machine {name!r}", text, [_family_name(machine) for machine in offered])


def find(name: str) -> GpuSpec | CloudMachine:
    """The GPU or else the cloud machine of that name.

    Raises:
        AmbiguousName: several have it.
        UnknownName: none has; the error knows the nearest of both kinds.
    """
    if _split_provider(name)[0] is not None:
        return find_cloud(name)
    try:
        return find_gpu(name)
    except UnknownName:
        try:
            return find_cloud(name)
        except UnknownName:
            names = [*(gpu.name for gpu in gpus()), *(_family_name(machine) for machine in clouds())]
            raise _unknown(f"there is no GPU or cloud machine {name!r}", name, names) from None


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _key(name: str) -> str:
    """What is left of a name when case, spacing and the maker don't count: the driver says "NVIDIA GeForce …"."""
    return re.sub(r"^(nvidia)?(geforce|tesla)?", "", _squeeze(name))


@functools.cache
def _by_alias() -> dict[str, GpuSpec]:
    return {_key(alias): gpu for gpu in gpus() for alias in (gpu.name, *gpu.aliases)}


def _words(name: str) -> frozenset[str]:
    """The words of a name; "rtx3060" is two, "12gb", "a100" and "max-q" are one."""
    spaced = re.sub(r"(?<![a-z])(rtx|gtx|rx)(?=\d)", r"\1 ", name.lower())
    spaced = re.sub(r"(\d)\s*(gb|gib)\b", r"\1gb", spaced)
    spaced = re.sub(r"\bmax[ -]?q\b", "maxq", spaced)
    return frozenset(re.findall(r"[a-z0-9.]+", spaced))


@functools.cache
def _variants(gpu: GpuSpec) -> tuple[frozenset[str], ...]:
    return tuple(_words(name) for name in (gpu.name, *gpu.aliases))


@functools.cache
def _known(gpu: GpuSpec) -> frozenset[str]:
    """Every word that may stand in a name for this GPU without contradicting it."""
    words = frozenset[str]().union(*_variants(gpu), {gpu.vendor, f"{gpu.nominal / GIB:g}gb"}, _EMPTY)
    if words & {"sxm2", "sxm4", "sxm5"}:
        words |= {"sxm"}
    # NVIDIA has dropped the name for its data-centre cards; people haven't.
    return words if gpu.vendor != "nvidia" or words & (_LINES - {"tesla"}) else words | {"tesla"}


def _is_meant(wanted: frozenset[str], gpu: GpuSpec) -> bool:
    """Whether every word typed is one of the GPU's, and none of its telling words were left out."""
    known = _known(gpu)
    asked = {f"{word}gb" if word.isdigit() and f"{word}gb" in known else word for word in wanted}
    if not asked <= known or not _telling(asked):
        return False
    return any(not _telling(has - asked) for has in _variants(gpu))


def _telling(words: Iterable[str]) -> set[str]:
    """The words that tell which GPU it is: neither silent nor a size of memory."""
    return {word for word in words if word not in _SILENT and not _MEMORY.fullmatch(word)}


def _split_provider(name: str) -> tuple[str | None, str]:
    words = name.strip().lower().split()
    if len(words) > 1 and words[0] in _PROVIDERS:
        return _PROVIDERS[words[0]], " ".join(words[1:])
    return None, name


def _family_name(machine: CloudMachine) -> str:
    """What the provider calls the line of machines: "p5", "a2-highgpu"; Azure's sizes have no such part."""
    if machine.provider == "aws":
        return machine.name.split(".")[0]
    return machine.name.rsplit("-", 1)[0] if machine.provider == "gcp" else machine.name


def _nearest(name: str, offered: Iterable[str]) -> tuple[str, ...]:
    """Sort by how alike the letters are, then by how close the numbers, then by the whole text.

    What isn't alike in letters, or has only a number and a very different one, is left out.
    """
    letters, number = _parts(name)
    if not _telling(_words(name)) - _PROVIDERS.keys():
        return ()

    def distance(candidate: str) -> tuple[float, float, float]:
        their_letters, their_number = _parts(candidate)
        alike = difflib.SequenceMatcher(None, letters, their_letters).ratio()
        whole = difflib.SequenceMatcher(None, _squeeze(name), _squeeze(candidate)).ratio()
        return -round(alike, 1), abs(number - their_number), -whole

    def is_near(candidate: str) -> bool:
        alike, gap, _ = distance(candidate)
        return -alike >= _ALIKE and (bool(letters) or gap <= number / 2)

    return tuple(sorted(filter(is_near, dict.fromkeys(offered)), key=distance)[:_SHOWN])


def _parts(name: str) -> tuple[str, int]:
    """The leading letters that tell, and the first number: "GeForce RTX 3060" is ("", 3060), "p5en" is ("p", 5)."""
    text = " ".join(word for word in re.findall(r"[a-z]+|\d+", name.lower()) if word not in _SILENT)
    match = re.match(r"(?P<letters>[a-z ]*?) ?(?P<number>\d+|$)", text)
    assert match is not None  # noqa: S101  every part of the pattern may be empty
    return match["letters"], int(match["number"] or 0)


def _ambiguous(name: str, matches: Iterable[str]) -> AmbiguousName:
    found = tuple(matches)
    listed = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return AmbiguousName(f"{name!r} may be {listed}", "write which one you mean", found)


def _unknown(why: str, name: str, offered: Iterable[str]) -> UnknownName:
    nearest = _nearest(name, offered)
    near = f"; the nearest are {', '.join(nearest)}" if nearest else ""
    return UnknownName(f"{why}{near}", "`oomph gpus` lists GPUs, `oomph gpus --cloud aws` machines", nearest)


def machines_with(gpu: GpuSpec) -> dict[str, list[CloudMachine]]:
    """The cloud machines that have a GPU, by provider, those with the fewest first."""
    found: dict[str, list[CloudMachine]] = defaultdict(list)
    for machine in sorted(clouds(), key=lambda machine: (machine.gpu_count * machine.gpu_share, machine.ram)):
        if find_gpu(machine.gpu) == gpu:
            found[machine.provider].append(machine)
    return dict(found)
