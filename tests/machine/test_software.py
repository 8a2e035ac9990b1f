from __future__ import annotations

from pathlib import Path

import pytest

from oomph.machine import Unknown
from oomph.machine._software import ImportCheck, parse_import_check, read_software


def write_package(folder: Path, name: str, version: str, requires: str = "") -> None:
    (folder / name / "lib").mkdir(parents=True)
    (folder / name / "version.py").write_text(version)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}\n")


def test_installed_torch_is_read_without_importing_it() -> None:
    software = read_software()
    import torch

    assert software.torch.known == torch.__version__
    assert software.torch_cuda.known == (torch.version.cuda or "none")
    assert (software.torch_library_bytes.known or 0) > 100 * 1024**2
    assert software.import_check is None


def test_builds_are_distinguished_by_their_files(tmp_path: Path) -> None:
    write_package(tmp_path, "torch", "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n")
    (tmp_path / "torch" / "lib" / "torch_cuda.dll").write_bytes(b"x" * 1000)
    (tmp_path / "torch" / "lib" / "notes.txt").write_bytes(b"x" * 999)
    write_package(tmp_path, "torchvision", "__version__ = '0.26.0+cu130'\n", "Requires-Dist: torch (==2.11.0)")
    software = read_software(packages=tmp_path)
    assert (software.torch.known, software.torch_cuda.known) == ("2.11.0+cu130", "13.0")
    assert software.torch_library_bytes.known == 1000
    assert (software.torchvision.known, software.torchvision_requires.known) == ("0.26.0+cu130", "2.11.0")


def test_missing_packages_are_unknown(tmp_path: Path) -> None:
    software = read_software(packages=tmp_path)
    assert software.torch.value == Unknown("torch is not installed")
    assert isinstance(software.torchvision_requires.value, Unknown)
    assert isinstance(software.torch_library_bytes.value, Unknown)


def test_damaged_installation_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    software = read_software(packages=tmp_path)
    assert isinstance(software.torch.value, Unknown)
    assert isinstance(software.torch_library_bytes.value, Unknown)


def check_with(torch: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ImportCheck:
    """Import a fake torch with this source."""
    (folder / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    check = read_software(import_torch=True).import_check
    assert check is not None
    return check


@pytest.mark.medium
def test_torch_that_kills_its_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, signal, sys\nsys.stderr.write('out of luck\\n')\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    check = check_with(code, tmp_path, monkeypatch)
    assert check.torch_error.known == "the process that imported it was killed by SIGSEGV (out of luck)"


@pytest.mark.medium
def test_torch_that_exits_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_with("import os\nos._exit(3)\n", tmp_path, monkeypatch)
    assert check.torch_error.known == "the process that imported it exited with code 3"


@pytest.mark.medium
def test_output_of_torch_does_not_disturb_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import atexit
class cuda:
    is_available = staticmethod(lambda: True)
    get_arch_list = staticmethod(lambda: ["sm_90"])
print("welcome", end="")
atexit.register(print, "goodbye")
"""
    check = check_with(code, tmp_path, monkeypatch)
    assert (check.torch_error.known, check.cuda_available.known) == ("", True)
    assert check.architectures.known == ("sm_90",)


@pytest.mark.medium
def test_error_of_torch_cuda_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
class cuda:
    @staticmethod
    def is_available():
        raise RuntimeError("no luck")
    get_arch_list = is_available
"""
    check = check_with(code, tmp_path, monkeypatch)
    assert check.torch_error.known == ""
    assert check.cuda_available.value == Unknown("RuntimeError: no luck")
    assert check.architectures.value == Unknown("RuntimeError: no luck")


@pytest.mark.medium
def test_import_check_reports_the_installed_torch_and_not_one_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "torch"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('trap').touch(); raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    check = read_software(import_torch=True).import_check
    assert check is not None
    assert check.torch_error.known == ""
    assert check.cuda_available.known is False
    assert isinstance(check.torchvision_error.value, Unknown)
    assert not (tmp_path / "trap").exists()


def test_broken_library_link_is_skipped(tmp_path: Path) -> None:
    write_package(tmp_path, "torch", "__version__ = '2.11.0'\n")
    (tmp_path / "torch" / "lib" / "libtorch.so").write_bytes(b"x" * 7)
    (tmp_path / "torch" / "lib" / "libgone.so").symlink_to("nowhere")
    assert read_software(packages=tmp_path).torch_library_bytes.known == 7


def test_error_of_torchvision_is_reported() -> None:
    result: dict[str, object] = {
        "cuda": False,
        "archs": [],
        "torchvision": "RuntimeError: operator torchvision::nms does not exist",
    }
    assert (
        parse_import_check(result, "x").torchvision_error.known
        == "RuntimeError: operator torchvision::nms does not exist"
    )


def test_error_of_torch_is_reported() -> None:
    check = parse_import_check({"torch": "OSError: libcudnn.so.9"}, "x")
    assert check.torch_error.known == "OSError: libcudnn.so.9"
    assert isinstance(check.cuda_available.value, Unknown)
