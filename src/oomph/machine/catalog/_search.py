"""Search for a GPU or cloud machine by a name as users type it: "3060", "rtx3060 12gb", "A100-80", "AWS P8"."""

from __future__ import annotations

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from ...errors import AmbiguousName, UnknownName, shorten
from ...units import GIB
from ._catalog import CloudMachine, GpuSpec, cloud_machines, gpu_specs

_PROVIDERS = {
    "aws": "aws",
    "amazon": "aws",
    "gcp": "gcp",
    "google": "gcp",
    "azure": "azure",
    "microsoft": "azure",
}

# Words that may be left out. "3060" never means the Ti or the laptop model, but it may mean any memory size.
_PRODUCT_LINES = {"geforce", "rtx", "gtx", "quadro", "tesla", "titan", "jetson", "radeon", "rx", "instinct"}
_FORM_FACTORS = {"pcie", "sxm", "sxm2", "sxm4", "sxm5", "hbm2", "hbm3"}
_EDITIONS = {"blackwell", "edition", "workstation", "server", "maxq"}
# Words that fit every GPU.
_GENERIC = {"gpu", "graphics", "generation"}
_OPTIONAL = _PRODUCT_LINES | _FORM_FACTORS | _EDITIONS | _GENERIC | {"nvidia", "amd", "apple"}
_MEMORY_SIZE = re.compile(r"\d+(gb|gib|g)")
_MAX_LISTED = 5
_MIN_SIMILARITY = 0.5
_MAX_COMPARED = 100  # characters of a name; comparing takes time with its length
_MAX_DIGITS = 9  # of a number in a name; Python refuses to convert thousands of them


def find_gpu(name: str) -> GpuSpec:
    """Return the GPU with a name; the spelling may vary.

    Raises:
        AmbiguousName: Several GPUs match.
        UnknownName: No GPU matches; the error lists similar names.
    """
    matches = _matching_gpus(name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous_name(name, [gpu.name for gpu in matches])
    raise _unknown_name("GPU", name, name, [gpu.name for gpu in gpu_specs()])


def _matching_gpus(name: str) -> list[GpuSpec]:
    words = _words(name)
    exact = _specs_by_key().get(_key(name))
    # The key drops the product line: "Tesla T4" is the T4, but "Tesla 4090" is not the GeForce.
    if exact is not None and words & _PRODUCT_LINES <= _known_words(exact):
        return [exact]
    return [gpu for gpu in gpu_specs() if _matches(words, gpu)]


def find_cloud_machine(name: str) -> CloudMachine:
    """Return the cloud machine with a name, which may start with the provider.

    Raises:
        AmbiguousName: Several machines match.
        UnknownName: No machine matches; the error lists similar names.
    """
    provider, text = _split_provider(name)
    squeezed = _squeeze(text)
    candidates = [machine for machine in cloud_machines() if provider in {None, machine.provider}]
    # "aws a100" means all machines of the provider with that GPU.
    gpu_names = {gpu.name for gpu in gpu_specs() if provider is not None and _matches(_words(text), gpu)}
    tests: tuple[Callable[[CloudMachine], bool], ...] = (
        lambda machine: squeezed in {_squeeze(machine.name), _squeeze(machine.name).removeprefix("standard")},
        lambda machine: squeezed == _squeeze(_family(machine)),
        lambda machine: find_gpu(machine.gpu).name in gpu_names,
    )
    for test in tests:
        matches = [machine for machine in candidates if test(machine)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise _ambiguous_name(name, [machine.name for machine in matches])
    raise _unknown_name("cloud machine", name, text, [_family(machine) for machine in candidates])


def find_in_catalog(name: str) -> GpuSpec | CloudMachine:
    """Return the GPU with a name, or else the cloud machine.

    Raises:
        AmbiguousName: Several entries match.
        UnknownName: No entry matches; the error lists similar names.
    """
    if _split_provider(name)[0] is not None:
        return find_cloud_machine(name)
    try:
        return find_gpu(name)
    except UnknownName:
        try:
            return find_cloud_machine(name)
        except UnknownName:
            names = [*(gpu.name for gpu in gpu_specs()), *(_family(machine) for machine in cloud_machines())]
            raise _unknown_name("GPU or cloud machine", name, name, names) from None


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _key(name: str) -> str:
    """Return a name without case, spacing and vendor: the driver says "NVIDIA GeForce …"."""
    return re.sub(r"^(nvidia)?(geforce|tesla)?", "", _squeeze(name))


@functools.cache
def _specs_by_key() -> dict[str, GpuSpec]:
    return {_key(alias): gpu for gpu in gpu_specs() for alias in (gpu.name, *gpu.aliases)}


def _words(name: str) -> frozenset[str]:
    """Split a name into words; "rtx3060" is two, while "12gb", "a100" and "max-q" are one."""
    spaced = re.sub(r"(?<![a-z])(rtx|gtx|rx)(?=\d)", r"\1 ", name.lower())
    spaced = re.sub(r"(\d)\s*(gb|gib)\b", r"\1gb", spaced)
    spaced = re.sub(r"\bmax[ -]?q\b", "maxq", spaced)
    return frozenset(re.findall(r"[a-z0-9.]+", spaced))


@functools.cache
def _alias_words(gpu: GpuSpec) -> tuple[frozenset[str], ...]:
    return tuple(_words(name) for name in (gpu.name, *gpu.aliases))


@functools.cache
def _known_words(gpu: GpuSpec) -> frozenset[str]:
    """Return all words that a name for this GPU may contain."""
    words = frozenset[str]().union(*_alias_words(gpu), {gpu.vendor, f"{gpu.nominal / GIB:g}gb"}, _GENERIC)
    if words & {"sxm2", "sxm4", "sxm5"}:
        words |= {"sxm"}
    # NVIDIA no longer calls its data-center cards "Tesla", but users do.
    return words if gpu.vendor != "nvidia" or words & (_PRODUCT_LINES - {"tesla"}) else words | {"tesla"}


def _matches(words: frozenset[str], gpu: GpuSpec) -> bool:
    """Return True if all typed words fit the GPU and none of its required words is missing."""
    known = _known_words(gpu)
    typed = {f"{word}gb" if word.isdigit() and f"{word}gb" in known else word for word in words}
    if not typed <= known or not _required(typed):
        return False
    return any(not _required(alias - typed) for alias in _alias_words(gpu))


def _required(words: Iterable[str]) -> set[str]:
    """Return the words that identify a GPU: neither optional nor a memory size."""
    return {word for word in words if word not in _OPTIONAL and not _MEMORY_SIZE.fullmatch(word)}


def _split_provider(name: str) -> tuple[str | None, str]:
    words = name.strip().lower().split()
    if len(words) > 1 and words[0] in _PROVIDERS:
        return _PROVIDERS[words[0]], " ".join(words[1:])
    return None, name


def _family(machine: CloudMachine) -> str:
    """Return the provider's product family: "p5", "a2-highgpu". Azure's names have no such part."""
    if machine.provider == "aws":
        return machine.name.split(".")[0]
    return machine.name.rsplit("-", 1)[0] if machine.provider == "gcp" else machine.name


def _similar_names(name: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """Sort names by the similarity of their letters, then of their numbers, then of the whole text.

    Names with unlike letters are left out, and so are names that share no letters and have a very different number.
    """
    letters, number = _letters_and_number(name)
    if not _required(_words(name)) - _PROVIDERS.keys():
        return ()

    def distance(candidate: str) -> tuple[float, float, float]:
        candidate_letters, candidate_number = _letters_and_number(candidate)
        similarity = difflib.SequenceMatcher(None, letters, candidate_letters).ratio()
        whole = difflib.SequenceMatcher(None, _squeeze(name), _squeeze(candidate)).ratio()
        return -round(similarity, 1), abs(number - candidate_number), -whole

    def is_similar(candidate: str) -> bool:
        similarity, gap, _ = distance(candidate)
        return -similarity >= _MIN_SIMILARITY and (bool(letters) or gap <= number / 2)

    return tuple(sorted(filter(is_similar, dict.fromkeys(candidates)), key=distance)[:_MAX_LISTED])


def _letters_and_number(name: str) -> tuple[str, int]:
    """Return the leading required letters and the first number: "RTX 3060" is ("", 3060), "p5en" is ("p", 5)."""
    text = " ".join(word for word in re.findall(r"[a-z]+|\d+", name.lower()) if word not in _OPTIONAL)
    match = re.match(r"(?P<letters>[a-z ]*?) ?(?P<number>\d+|$)", text)
    assert match is not None  # noqa: S101  every part of the pattern may be empty
    return match["letters"], int(match["number"][:_MAX_DIGITS] or 0)


def _ambiguous_name(name: str, matches: list[str]) -> AmbiguousName:
    more = f" and {len(matches) - _MAX_LISTED} more" if len(matches) > _MAX_LISTED else ""
    listed = ", ".join(matches[:_MAX_LISTED]) + more
    return AmbiguousName(f"{shorten(name)!r} matches {listed}", "write the full name", tuple(matches))


def _unknown_name(kind: str, name: str, text: str, candidates: Iterable[str]) -> UnknownName:
    similar = _similar_names(text[:_MAX_COMPARED], candidates)
    hint = f"; similar names are {', '.join(similar)}" if similar else ""
    return UnknownName(
        f"there is no {kind} {shorten(name)!r} in the catalog{hint}",
        "run `oomph gpus` to list GPUs, or `oomph gpus --cloud aws` to list machines",
        similar,
    )


def cloud_machines_with(gpu: GpuSpec) -> dict[str, list[CloudMachine]]:
    """Return the cloud machines with a GPU by provider, those with the fewest GPUs first."""
    by_provider: dict[str, list[CloudMachine]] = defaultdict(list)
    for machine in sorted(
        cloud_machines(), key=lambda machine: (machine.gpu_count * machine.gpu_fraction, machine.ram)
    ):
        if find_gpu(machine.gpu) == gpu:
            by_provider[machine.provider].append(machine)
    return dict(by_provider)
