"""The torch of this environment, read from its files without importing it, and, on request, by a trial import."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._fact import Fact, Unknown, unknown

_TRIAL_SECONDS = 120


@dataclass(frozen=True)
class ImportCheck:
    """What a fresh interpreter said when it imported torch and torchvision.

    Attributes:
        torch_error: the last line of the traceback of `import torch`; empty when it works.
        cuda_available: what `torch.cuda.is_available()` says.
        architectures: the GPU architectures that this torch has kernels for ("sm_90").
        torchvision_error: as `torch_error`; unknown when torchvision isn't installed.
    """

    torch_error: Fact[str]
    cuda_available: Fact[bool]
    architectures: Fact[tuple[str, ...]]
    torchvision_error: Fact[str]


@dataclass(frozen=True)
class Software:
    """Versions that have to match each other and the driver.

    Attributes:
        python: the interpreter's version.
        torch: torch's version with its local part: "2.13.0+cpu".
        torch_cuda: the CUDA version torch was built for; "none" for a build without CUDA.
        torch_libraries: bytes of torch's shared libraries, which Windows charges to every process that loads them.
        torchvision: torchvision's version with its local part.
        torchvision_wants: the torch version that torchvision was built for.
        trial: what really happened at import, if it was asked for.
    """

    python: str
    torch: Fact[str]
    torch_cuda: Fact[str]
    torch_libraries: Fact[int]
    torchvision: Fact[str]
    torchvision_wants: Fact[str]
    trial: ImportCheck | None


def read_software(*, try_torch: bool = False, packages: Path | None = None) -> Software:
    """Read the versions of this environment.

    Args:
        try_torch: import torch and torchvision in an interpreter of their own, which takes seconds.
        packages: the site-packages folder to look into instead of the running interpreter's path.
    """
    torch, vision = _folder("torch", packages), _folder("torchvision", packages)
    return Software(
        python=platform.python_version(),
        torch=_assigned(torch, "__version__"),
        torch_cuda=_assigned(torch, "cuda", none="none"),
        torch_libraries=_libraries(torch),
        torchvision=_assigned(vision, "__version__"),
        torchvision_wants=_wanted_torch(packages),
        trial=_try() if try_torch else None,
    )


def _folder(package: str, packages: Path | None) -> Path | Unknown:
    if packages is not None:
        folder = packages / package
        return folder if folder.is_dir() else Unknown(f"{package} is not installed")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return Unknown(f"{package} is not installed")
    return Path(spec.origin).parent


def _assigned(folder: Path | Unknown, name: str, none: str = "") -> Fact[str]:
    """A string assigned in the package's `version.py`."""
    if isinstance(folder, Unknown):
        return Fact(folder, "installed packages")
    path = folder / "version.py"
    source = f"{folder.name}/version.py {name}"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return unknown(error.strerror or str(error), source)
    match = re.search(rf"^{name}\b[^=\n]*= *(?:['\"](?P<text>[^'\"]+)['\"]|None)", text, re.MULTILINE)
    return Fact(match["text"] or none, source) if match else unknown("its version.py doesn't say", source)


def _libraries(folder: Path | Unknown) -> Fact[int]:
    if isinstance(folder, Unknown):
        return Fact(folder, "installed packages")
    found = (path for path in (folder / "lib").glob("*") if re.search(r"\.(dll|so|dylib)(\.|$)", path.name))
    files = [path for path in found if path.is_file()]  # a link may lead nowhere
    if not files:
        return unknown("no libraries found beside it", "torch/lib")
    return Fact(sum(path.stat().st_size for path in files), "torch/lib")


def _wanted_torch(packages: Path | None) -> Fact[str]:
    source = "torchvision's metadata"
    found = importlib.metadata.distributions(name="torchvision", path=sys.path if packages is None else [str(packages)])
    for distribution in found:
        for requirement in distribution.requires or ():
            if match := re.match(r"torch\s*\(?==\s*([\w.+]+)", requirement):
                return Fact(match[1], source)
    return unknown("no pinned torchvision is installed", source)


_MARK = "oomph:"
# The current folder comes first on the path of `python -c`: a file called json.py or torch.py there is not meant.
_PROBE = f"""
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json
answer = {{}}
def words(error):
    return f"{{type(error).__name__}}: {{error}}".splitlines()[0]
def attempt(name):
    try:
        return __import__(name)
    except BaseException as error:
        answer[name] = words(error)
def ask(name, question):
    try:
        answer[name] = question()
    except BaseException as error:
        answer[name + "_error"] = words(error)
torch = attempt("torch")
if torch:
    ask("cuda", lambda: bool(torch.cuda.is_available()))
    ask("archs", lambda: list(map(str, torch.cuda.get_arch_list())))
    attempt("torchvision")
print("\\n{_MARK}" + json.dumps(answer), file=sys.__stdout__, flush=True)
"""


def _try() -> ImportCheck:
    source = "a trial import"
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter and text
            [sys.executable, "-W", "ignore", "-c", _PROBE],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _no_trial(f"the interpreter that imported it did not answer within {_TRIAL_SECONDS} seconds", source)
    except OSError as error:
        return _no_trial(f"no interpreter could be started ({error.strerror})", source)
    # torch, or what it imports, may print too.
    answers = [line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK)]
    return _trial(json.loads(answers[-1]), source) if answers else _no_trial(_death(done), source)


def _death(done: subprocess.CompletedProcess[str]) -> str:
    """How an interpreter ended, with its last words."""
    code = done.returncode
    named = {int(one): one.name for one in signal.Signals}
    end = f"was ended by {named.get(-code, f'signal {-code}')}" if code < 0 else f"left with exit code {code}"
    last = done.stderr.strip().splitlines()[-1:]
    return f"the interpreter that imported it {end}" + "".join(f" ({line.strip()})" for line in last)


def _no_trial(why: str, source: str) -> ImportCheck:
    return ImportCheck(Fact(why, source), unknown(why, source), unknown(why, source), unknown(why, source))


def _trial(answer: dict[str, object], source: str) -> ImportCheck:
    vision = str(answer.get("torchvision", ""))
    absent = vision.startswith("ModuleNotFoundError") and "'torchvision'" in vision
    failed = "torch" in answer
    gone = "torch does not import"

    def told(name: str) -> Any:
        error = answer.get(f"{name}_error", "it did not say")
        return Unknown(gone if failed else str(error)) if name not in answer else answer[name]

    archs = told("archs")
    return ImportCheck(
        torch_error=Fact(str(answer.get("torch", "")), source),
        cuda_available=Fact(told("cuda"), source),
        architectures=Fact(archs if isinstance(archs, Unknown) else tuple(map(str, archs)), source),
        torchvision_error=(
            unknown("torchvision is not installed", source)
            if absent
            else unknown(gone, source)
            if failed
            else Fact(vision, source)
        ),
    )
