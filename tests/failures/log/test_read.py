from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.failures import CAUSES, FailureKind, Family, last_error, read_log
from oomph.units import GIB, MIB
from tests.failures.texts import MEMORY, NOT_MEMORY, NUMERICS

ALL = (*MEMORY, *NUMERICS, *NOT_MEMORY)
NAMES = [f"{kind.value}: {name}" for kind, name, _ in ALL]
TEXT = {name: text for _, name, text in (*MEMORY, *NOT_MEMORY)}
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 88, in step\n    loss.backward()\n'


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, _, text in ALL], ids=NAMES)
def test_every_text_is_recognized(kind: FailureKind, text: str) -> None:
    assert [finding.kind for finding in read_log(text)][:1] == [kind]


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, _, text in ALL], ids=NAMES)
def test_every_text_is_recognized_among_colors_and_progress_bars(kind: FailureKind, text: str) -> None:
    bars = "".join(f"\rEpoch 1:  {n}%|█   | {n}/100 [00:{n:02}<00:10, 9.1it/s]" for n in range(20))
    log = f"\x1b[32mINFO\x1b[0m start{bars}\n{TRACEBACK}{text}\n\x1b[31mfailed\x1b[0m\n"
    assert read_log(log)[0].kind is kind


def test_texts_cover_all_kinds_of_memory_failures() -> None:
    assert len(MEMORY) >= 30
    assert len(NOT_MEMORY) >= 10
    others = {Family.OTHER, Family.NUMERICS}
    assert not any(CAUSES[kind].family in others for kind, _, _ in MEMORY)
    assert all(CAUSES[kind].family in others for kind, _, _ in (*NOT_MEMORY, *NUMERICS))
    seen = {kind for kind, _, _ in MEMORY if CAUSES[kind].is_memory}
    symptoms = {kind for kind in FailureKind if CAUSES[kind].family is Family.SYMPTOM}
    assert {kind for kind in FailureKind if CAUSES[kind].is_memory} == seen | symptoms


def test_every_kind_has_a_complete_cause() -> None:
    assert set(CAUSES) == set(FailureKind)
    assert all(
        cause.kind is kind and cause.title and cause.why.endswith(".") and cause.advice
        for kind, cause in CAUSES.items()
    )


def test_numbers_are_read() -> None:
    (finding,) = read_log(TEXT["torch 2.6 on a rank, with another process"])
    assert finding.numbers["requested"] == 86 * MIB
    assert finding.numbers["capacity"] == pytest.approx(39.39 * GIB, rel=1e-6)
    assert (finding.numbers["others"], finding.numbers["other_pid"]) == (17.5 * GIB, 90210)
    assert (finding.numbers["rank"], finding.numbers["device"]) == (3, 3)


def test_other_process_is_named_with_its_pid() -> None:
    (finding,) = read_log(TEXT["torch 2.6 on a rank, with another process"])
    assert any("17.5 GiB of the GPU is used by process 90210" in line for line in finding.details)
    assert finding.fix[:2] == (
        "Stop process 90210, wait for it, or use another GPU (CUDA_VISIBLE_DEVICES). See who started it:",
        "$ ps -o pid,user,etime,args -p 90210",
    )


def test_other_processes_are_not_blamed_when_a_cap_was_reached() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 "
        "GiB of which 117.56 GiB is free. Process 7800 has 6.63 GiB memory in use. Including non-PyTorch memory, this "
        "process has 712.00 MiB memory in use. 3.10 GiB allowed; Of the allocated memory 150.00 MiB is allocated by "
        "PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated."
    )
    (finding,) = read_log(text)
    assert not any("used by" in line for line in finding.details)
    assert any("may use only 3.1 GiB of 140 GiB" in line for line in finding.details)


def test_this_process_in_a_container_is_not_another_process() -> None:
    (finding,) = read_log(TEXT["a notebook, without the module's name"])
    assert "others" not in finding.numbers
    assert not any("used by" in line for line in finding.details)


@pytest.mark.parametrize(
    ("name", "detail", "fix"),
    [
        ("torch 2.0", "1.39 GiB is reserved but unused", "max_split_size_mb"),
        ("torch 2.9, private pools and a cap", "may use only 19.8 GiB of 79.2 GiB", "memory_fraction(1.0)"),
        ("larger than the GPU", "The program requested 127 TiB in one block", "print(x.shape, x.dtype)"),
        ("spilled", "spilled it into RAM", "Sysmem Fallback"),
        ("refused although memory is free", "More memory was free than it requested", "smaller micro-batches"),
    ],
)
def test_details_come_with_their_steps(name: str, detail: str, fix: str) -> None:
    (finding,) = read_log(TEXT[name])
    assert any(detail in line for line in finding.details), finding.details
    assert any(fix in line for line in finding.fix)


def test_cause_comes_before_its_consequences() -> None:
    log = (
        TEXT["NCCL"]
        + "\n[rank1]: "
        + TRACEBACK
        + "[rank1]: "
        + TEXT["torch 2.1, with its spelling"]
        + "\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    kinds = [finding.kind for finding in read_log(log)]
    assert kinds[0] is FailureKind.CUDA_OOM
    assert set(kinds[1:]) == {FailureKind.RANK_TIMEOUT, FailureKind.PEER_DIED}
    assert read_log(log)[0].numbers["rank"] == 1


def test_kinds_that_the_surroundings_refine_to_one_are_one_finding() -> None:
    assertion = "Loss.cu:106: block: [0,0,0], thread: [9,0,0] Assertion `input_val >= zero && input_val <= one` failed."
    (finding,) = read_log(f"{assertion}\nRuntimeError: CUDA error: device-side assert triggered\n")
    assert finding.kind is FailureKind.VALUE_ASSERT


def test_no_space_near_a_lock_is_shared_memory() -> None:
    text = "OSError: [Errno 28] No space left on device"
    assert [finding.resource.value for finding in read_log(text)] == ["disk"]
    near_lock = f"    sl = self._semlock = _multiprocessing.SemLock(\n{text}"
    assert [finding.resource.value for finding in read_log(near_lock)] == ["shm"]
    assert [finding.resource.value for finding in read_log(f"inotify_add_watch failed\n{text}")] == ["none"]


def test_library_error_after_an_assertion_is_the_assertion() -> None:
    assertion = "Indexing.cu:703: block: [4,0,0], thread: [6,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    error = TEXT["cuBLAS"]
    assert [finding.kind for finding in read_log(f"{assertion}\n{error}")] == [FailureKind.DEVICE_ASSERT]
    (alone,) = read_log(error)
    assert (alone.kind, alone.is_sure) == (FailureKind.LIBRARY_OOM, False)
    assert "CUDA_LAUNCH_BLOCKING" in alone.advice[0].command


def test_survived_failure_comes_after_the_final_one() -> None:
    progress = "".join(f"epoch {n} loss 0.{n} 3.1it/s\n" for n in range(60))
    end = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)"
    log = f"{TEXT['torch 2.0']}\nretrying with batch 8\n{progress}{TRACEBACK}{end}"
    ended, survived = read_log(log)
    assert (ended.kind, survived.kind) == (FailureKind.SHAPE, FailureKind.CUDA_OOM)
    assert survived.details[0] == "The run continued for long after this."
    assert read_log(TRACEBACK + "KeyError: 'x'\n" + progress) == ()


def test_final_failure_is_chosen_among_failures_of_one_kind() -> None:
    progress = "".join(f"epoch {n} loss 0.{n} 3.1it/s\n" for n in range(60))
    first, last = TEXT["torch 2.0"], TEXT["torch 2.1, with its spelling"]
    (finding,) = read_log(f"{first}\nretrying\n{progress}{TRACEBACK}{last}\n")
    assert finding.numbers["device"] == 1
    assert not any("continued" in line for line in finding.details)
    (both,) = read_log(f"{first}\n{progress}{last}\n{progress}")
    assert both.details[0] == "The run continued for long after this."


def test_kernel_log_explains_a_dead_worker() -> None:
    log = TEXT["a worker without a message"] + "\n" + TEXT["dmesg"]
    assert [finding.kind for finding in read_log(log)] == [FailureKind.OOM_KILL, FailureKind.WORKER_EXITED]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "everything is fine, loss 0.31",
        "Tip: if you get CUDA out of memory, reduce the batch size.",
        "    except torch.cuda.OutOfMemoryError:",
        "INFO checking memory: 12 GiB free, 0 out of memory events",
        "the job was killed by the user",
        "accuracy 137 of 200",
        "Killed processes: none",
        "finance: nan values were dropped from 3 rows",
        "INFO: class name resolution for 80 classes done",
        "hostname resolution took 0.02 s",
        "RuntimeError: Kernel died before replying to kernel_info",
    ],
)
def test_harmless_texts_are_not_failures(text: str) -> None:
    assert read_log(text) == ()


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (TEXT["requests gives up"], "Traceback (most recent call last):\nKeyError: 'names'", FailureKind.PYTHON_ERROR),
        (TEXT["a model behind a gate"], "FileNotFoundError: [Errno 2] No such file: 'a'", FailureKind.MISSING_FILE),
        (TEXT["an extension of torch"], "torch.cuda.OutOfMemoryError: CUDA out of memory.", FailureKind.CUDA_OOM),
        (TEXT["requests gives up"], TEXT["a hub that can't be reached"], FailureKind.NETWORK),
        ("Segmentation fault (core dumped)", TEXT["Jupyter"], FailureKind.CRASH),
        ("", "The kernel for My own training.ipynb appears to have died.", FailureKind.NOTEBOOK_DIED),
        (
            "Traceback (most recent call last):\nKeyError: 1",
            TEXT["nbconvert"],
            FailureKind.NOTEBOOK_DIED,
        ),
    ],
)
def test_harmless_error_comes_after_the_final_one(before: str, after: str, kind: FailureKind) -> None:
    assert read_log(f"{before}\n{after}\n")[0].kind is kind


def test_wrapped_lines_are_joined() -> None:
    text = TEXT["torch 2.1, with its spelling"]
    broken = "\n".join(text[at : at + 40] for at in range(0, len(text), 40))
    broken = broken.replace("CUDA out of memory", "CUDA out\nof memory")
    assert read_log(broken)[0].kind is FailureKind.CUDA_OOM
    assert read_log(text.replace(" of ", "\nof "))[0].numbers["free"] == pytest.approx(1.07 * GIB, rel=1e-3)


def test_last_error_of_an_unrecognized_text_is_returned() -> None:
    assert read_log("x\nRuntimeError: the frobnicator is open\n") == ()
    assert last_error("x\nRuntimeError: the frobnicator is open\n") == "RuntimeError: the frobnicator is open"
    assert last_error("nothing") is None


def test_long_log_is_read_quickly() -> None:
    line = (
        "2026-11-15 10:00:00 INFO epoch 3 step 1234 loss=0.1234 lr=1e-3 memory 10.2 GiB it/s=3.1 inf=0 nan=0 -9 137\n"
    )
    log = line * 30_000 + TRACEBACK + TEXT["torch 2.1, with its spelling"] + "\n"
    assert len(log) > 3_000_000
    start = time.process_time()
    assert read_log(log)[0].kind is FailureKind.CUDA_OOM
    assert time.process_time() - start < 2.0  # a third of a second on an idle machine


@pytest.mark.medium
def test_long_line_is_read() -> None:
    log = "x" * 1_000_000 + " CUDA out of memory. Tried to allocate 2.00 GiB " + "y" * 1_000_000
    assert read_log(log)[0].numbers["requested"] == 2 * GIB


@given(st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for finding in read_log(text + " CUDA out of memory. Tried to allocate " + text):
        assert finding.evidence == finding.evidence.strip()


def test_abort_comes_after_its_reason() -> None:
    end = "Aborted (core dumped)\n"
    for kind, name in (
        (FailureKind.BAD_ALLOC, None),
        (FailureKind.RANK_TIMEOUT, "NCCL"),
        (FailureKind.PEER_DIED, "gloo"),
    ):
        text = next(text for case, title, text in MEMORY if case is kind and name in {None, title})
        assert [finding.kind for finding in read_log(f"{text}\n{end}")] == [kind, FailureKind.ABORTED]


def test_advice_and_prose_are_not_failures() -> None:
    for text in (
        "Note: if this prints Out Of Memory, ask for more\n",
        "the request exceeded limit of 10 per second\n",
        "h_vmem=16G was asked for\n",
        "The mission was Aborted by the user interface, epoch 3\n",
    ):
        assert read_log(text) == (), text


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", FailureKind.CUDA_OOM),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x512 and 256x10)", FailureKind.SHAPE),
        ("epoch 3 step 200 loss 0.31", FailureKind.OOM_KILL),
        ("UserWarning: the scheduler steps before the optimizer", FailureKind.OOM_KILL),
    ],
)
def test_a_bare_kill_ends_what_an_explicit_failure_has_left(before: str, kind: FailureKind) -> None:
    assert read_log(f"{before}\nKilled")[0].kind is kind


def test_a_kill_by_the_kernel_comes_before_an_error_of_the_gpu() -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert read_log(f"{error}\nOut of memory: Killed process 41 (python)")[0].kind is FailureKind.OOM_KILL


@pytest.mark.parametrize(
    ("end", "is_survived"),
    [
        ("Finished. best val f1 = 0.8812", True),
        ("Done.", True),
        ("All done, saved to runs/exp7", True),
        ("done with errors: exit 1", False),
        ("Finished:    Tue, 17 Nov 2026 11:02:13 +0000", False),  # kubectl
        ("Done (t=0.02s)", False),  # pycocotools
        ("abandoned.", False),
    ],
)
def test_a_run_that_says_that_it_finished_has_survived(end: str, is_survived: bool) -> None:  # noqa: FBT001
    log = "CUDA out of memory. Tried to allocate 1.50 GiB.\n-> OOM, decreasing batch size to 32\nepoch 1 loss 0.3\n"
    assert read_log(f"{log}{end}\n")[0].was_survived is is_survived


def test_what_a_shell_says_after_a_failed_command_is_no_end_of_the_run() -> None:
    error = 'Traceback (most recent call last):\n  File "train.py", line 3\ntorch.OutOfMemoryError: CUDA out of memory.'
    assert not read_log(f"{error}\nDone.\n")[0].was_survived
    assert not read_log("step 3\nKilled\nFinished\n")[0].was_survived
