"""The installed torch and torchvision: versions read from their files, and on request an import in a new process."""

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

_IMPORT_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class ImportCheck:
    """Result of importing torch and torchvision in a new interpreter.

    Attributes:
        torch_error: The last line of the traceback of `import torch`; empty if it works.
        cuda_available: The result of `torch.cuda.is_available()`.
        architectures: The GPU architectures that this torch has kernels for, such as "sm_90".
        torchvision_error: The last line of the traceback of `import torchvision`; unknown if it isn't installed.
    """

    torch_error: Fact[str]
    cuda_available: Fact[bool]
    architectures: Fact[tuple[str, ...]]
    torchvision_error: Fact[str]


@dataclass(frozen=True)
class Software:
    """Versions that must match each other and the driver.

    Attributes:
        python: Version of the interpreter.
        torch: Version of torch with its local part: "2.13.0+cpu".
        torch_cuda: CUDA version that torch was built for; "none" for a CPU build.
        torch_library_bytes: Size of torch's shared libraries, which Windows charges to every process that loads them.
        torchvision: Version of torchvision with its local part.
        torchvision_requires: The torch version that torchvision was built for.
        import_check: Result of the import, if it was requested.
    """

    python: str
    torch: Fact[str]
    torch_cuda: Fact[str]
    torch_library_bytes: Fact[int]
    torchvision: Fact[str]
    torchvision_requires: Fact[str]
    import_check: ImportCheck | None


def read_software(*, import_torch: bool = False, packages: Path | None = None) -> Software:
    """Read the versions of this environment.

    Args:
        import_torch: Import torch and torchvision in a new process too, which takes seconds.
        packages: A site-packages folder to read instead of the path of this interpreter.
    """
    torch, torchvision = _package_folder("torch", packages), _package_folder("torchvision", packages)
    return Software(
        python=platform.python_version(),
        torch=_version_field(torch, "__version__"),
        torch_cuda=_version_field(torch, "cuda", none="none"),
        torch_library_bytes=_library_bytes(torch),
        torchvision=_version_field(torchvision, "__version__"),
        torchvision_requires=_required_torch(packages),
        import_check=_check_imports() if import_torch else None,
    )


def _package_folder(package: str, packages: Path | None) -> Path | Unknown:
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


def _version_field(folder: Path | Unknown, name: str, none: str = "") -> Fact[str]:
    """Read a string that is assigned in the package's `version.py`."""
    if isinstance(folder, Unknown):
        return Fact(folder, "installed packages")
    path = folder / "version.py"
    source = f"{folder.name}/version.py {name}"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return unknown(error.strerror or str(error), source)
    match = re.search(rf"^{name}\b[^=\n]*= *(?:['\"](?P<text>[^'\"]+)['\"]|None)", text, re.MULTILINE)
    return Fact(match["text"] or none, source) if match else unknown("its version.py doesn't contain it", source)


def _library_bytes(folder: Path | Unknown) -> Fact[int]:
    if isinstance(folder, Unknown):
        return Fact(folder, "installed packages")
    libraries = (path for path in (folder / "lib").glob("*") if re.search(r"\.(dll|so|dylib)(\.|$)", path.name))
    files = [path for path in libraries if path.is_file()]  # a symlink may be broken
    if not files:
        return unknown("the package contains no libraries", "torch/lib")
    return Fact(sum(path.stat().st_size for path in files), "torch/lib")


def _required_torch(packages: Path | None) -> Fact[str]:
    source = "torchvision's metadata"
    path = sys.path if packages is None else [str(packages)]
    for distribution in importlib.metadata.distributions(name="torchvision", path=path):
        for requirement in distribution.requires or ():
            if match := re.match(r"torch\s*\(?==\s*([\w.+]+)", requirement):
                return Fact(match[1], source)
    return unknown("no torchvision with a pinned torch is installed", source)


_OUTPUT_PREFIX = "oomph:"
# The current folder comes first on the path of `python -c`; a json.py or torch.py there must not be imported.
_CHECK_SCRIPT = f"""
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json
result = {{}}
def describe(error):
    return f"{{type(error).__name__}}: {{error}}".splitlines()[0]
def try_import(name):
    try:
        return __import__(name)
    except BaseException as error:
        result[name] = describe(error)
def query(name, function):
    try:
        result[name] = function()
    except BaseException as error:
        result[name + "_error"] = describe(error)
torch = try_import("torch")
if torch:
    query("cuda", lambda: bool(torch.cuda.is_available()))
    query("archs", lambda: list(map(str, torch.cuda.get_arch_list())))
    try_import("torchvision")
print("\\n{_OUTPUT_PREFIX}" + json.dumps(result), file=sys.__stdout__, flush=True)
"""


def _check_imports() -> ImportCheck:
    source = "an import in a new process"
    try:
        process = subprocess.run(  # noqa: S603  our own interpreter and script
            [sys.executable, "-W", "ignore", "-c", _CHECK_SCRIPT],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_IMPORT_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed_check(f"the import did not finish within {_IMPORT_TIMEOUT_SECONDS} seconds", source)
    except OSError as error:
        return _failed_check(f"no interpreter could be started ({error.strerror})", source)
    # torch, or a module that it imports, may print too.
    lines = process.stdout.splitlines()
    results = [line.removeprefix(_OUTPUT_PREFIX) for line in lines if line.startswith(_OUTPUT_PREFIX)]
    if not results:
        return _failed_check(_describe_exit(process), source)
    return parse_import_check(json.loads(results[-1]), source)


def _describe_exit(process: subprocess.CompletedProcess[str]) -> str:
    code = process.returncode
    signals = {int(number): number.name for number in signal.Signals}
    end = f"was killed by {signals.get(-code, f'signal {-code}')}" if code < 0 else f"exited with code {code}"
    last_line = process.stderr.strip().splitlines()[-1:]
    return f"the process that imported it {end}" + "".join(f" ({line.strip()})" for line in last_line)


def _failed_check(reason: str, source: str) -> ImportCheck:
    return ImportCheck(Fact(reason, source), unknown(reason, source), unknown(reason, source), unknown(reason, source))


def parse_import_check(result: dict[str, object], source: str) -> ImportCheck:
    """Convert the output of the import script to facts."""
    torchvision_error = str(result.get("torchvision", ""))
    is_absent = torchvision_error.startswith("ModuleNotFoundError") and "'torchvision'" in torchvision_error
    torch_failed = "torch" in result
    no_torch = "torch does not import"

    def value(name: str) -> Any:
        if name in result:
            return result[name]
        return Unknown(no_torch if torch_failed else str(result.get(f"{name}_error", "it was not reported")))

    architectures = value("archs")
    return ImportCheck(
        torch_error=Fact(str(result.get("torch", "")), source),
        cuda_available=Fact(value("cuda"), source),
        architectures=Fact(
            architectures if isinstance(architectures, Unknown) else tuple(map(str, architectures)), source
        ),
        torchvision_error=(
            unknown("torchvision is not installed", source)
            if is_absent
            else unknown(no_torch, source)
            if torch_failed
            else Fact(torchvision_error, source)
        ),
    )
