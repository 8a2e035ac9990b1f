from __future__ import annotations

from pathlib import Path

import pytest

from oomph.machine._fact import Unknown
from oomph.machine._software import ImportCheck, _trial, read_software


def package(folder: Path, name: str, version: str, requires: str = "") -> None:
    (folder / name / "lib").mkdir(parents=True)
    (folder / name / "version.py").write_text(version)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}\n")


def test_the_installed_torch_is_read_without_importing_it() -> None:
    software = read_software()
    import torch

    assert software.torch.known == torch.__version__
    assert software.torch_cuda.known == (torch.version.cuda or "none")
    assert (software.torch_libraries.known or 0) > 100 * 1024**2
    assert software.trial is None


def test_builds_are_told_apart_by_their_files(tmp_path: Path) -> None:
    package(tmp_path, "torch", "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n")
    (tmp_path / "torch" / "lib" / "torch_cuda.dll").write_bytes(b"x" * 1000)
    (tmp_path / "torch" / "lib" / "notes.txt").write_bytes(b"x" * 999)
    package(tmp_path, "torchvision", "__version__ = '0.26.0+cu130'\n", "Requires-Dist: torch (==2.11.0)")
    software = read_software(packages=tmp_path)
    assert (software.torch.known, software.torch_cuda.known) == ("2.11.0+cu130", "13.0")
    assert software.torch_libraries.known == 1000
    assert (software.torchvision.known, software.torchvision_wants.known) == ("0.26.0+cu130", "2.11.0")


def test_what_is_not_installed_is_unknown(tmp_path: Path) -> None:
    software = read_software(packages=tmp_path)
    assert software.torch.value == Unknown("torch is not installed")
    assert isinstance(software.torchvision_wants.value, Unknown)
    assert isinstance(software.torch_libraries.value, Unknown)


def test_a_damaged_install_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    software = read_software(packages=tmp_path)
    assert isinstance(software.torch.value, Unknown)
    assert isinstance(software.torch_libraries.value, Unknown)


def test_a_trial_import_says_what_torch_says() -> None:
    trial = read_software(try_torch=True).trial
    assert trial is not None
    assert trial.torch_error.known == ""
    assert trial.cuda_available.known is False
    assert isinstance(trial.torchvision_error.value, Unknown)


def trial_with(torch: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ImportCheck:
    """A trial import of a torch that we wrote ourselves."""
    (folder / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    trial = read_software(try_torch=True).trial
    assert trial is not None
    return trial


def test_a_torch_that_kills_its_interpreter_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, signal, sys\nsys.stderr.write('out of luck\\n')\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    trial = trial_with(code, tmp_path, monkeypatch)
    assert trial.torch_error.known == "the interpreter that imported it was ended by SIGSEGV (out of luck)"


def test_a_torch_that_leaves_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_with("import os\nos._exit(3)\n", tmp_path, monkeypatch)
    assert trial.torch_error.known == "the interpreter that imported it left with exit code 3"


def test_a_torch_that_prints_is_heard_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import atexit
class cuda:
    is_available = staticmethod(lambda: True)
    get_arch_list = staticmethod(lambda: ["sm_90"])
print("welcome", end="")
atexit.register(print, "goodbye")
"""
    trial = trial_with(code, tmp_path, monkeypatch)
    assert (trial.torch_error.known, trial.cuda_available.known) == ("", True)
    assert trial.architectures.known == ("sm_90",)


def test_a_torch_whose_cuda_raises_keeps_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
class cuda:
    @staticmethod
    def is_available():
        raise RuntimeError("no luck")
    get_arch_list = is_available
"""
    trial = trial_with(code, tmp_path, monkeypatch)
    assert trial.torch_error.known == ""
    assert trial.cuda_available.value == Unknown("RuntimeError: no luck")
    assert trial.architectures.value == Unknown("RuntimeError: no luck")


@pytest.mark.parametrize("name", ["json", "torch"])
def test_a_trial_runs_nothing_from_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('trap').touch(); raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    trial = read_software(try_torch=True).trial
    assert trial is not None
    assert trial.torch_error.known == ""
    assert not (tmp_path / "trap").exists()


def test_a_library_link_that_leads_nowhere_is_skipped(tmp_path: Path) -> None:
    package(tmp_path, "torch", "__version__ = '2.11.0'\n")
    (tmp_path / "torch" / "lib" / "libtorch.so").write_bytes(b"x" * 7)
    (tmp_path / "torch" / "lib" / "libgone.so").symlink_to("nowhere")
    assert read_software(packages=tmp_path).torch_libraries.known == 7


def test_a_broken_torchvision_keeps_its_words() -> None:
    answer: dict[str, object] = {
        "cuda": False,
        "archs": [],
        "torchvision": "RuntimeError: operator torchvision::nms does not exist",
    }
    assert _trial(answer, "x").torchvision_error.known == "RuntimeError: operator torchvision::nms does not exist"


def test_a_torch_that_does_not_import_keeps_its_words() -> None:
    trial = _trial({"torch": "OSError: libcudnn.so.9"}, "x")
    assert trial.torch_error.known == "OSError: libcudnn.so.9"
    assert isinstance(trial.cuda_available.value, Unknown)
