from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.failures import CAUSES, FailureKind, Family, last_error, read_log
from oomph.units import GIB, MIB

from .texts import MEMORY, NUMBERS, OTHER

ALL = (*MEMORY, *NUMBERS, *OTHER)
NAMES = [f"{kind.value}: {name}" for kind, name, _ in ALL]
TEXT = {name: text for _, name, text in (*MEMORY, *OTHER)}
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 88, in step\n    loss.backward()\n'


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, _, text in ALL], ids=NAMES)
def test_every_text_is_named_rightly(kind: FailureKind, text: str) -> None:
    assert [found.kind for found in read_log(text)][:1] == [kind]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, _, text in ALL], ids=NAMES)
def test_in_the_middle_of_a_log_with_colours_and_bars_too(kind: FailureKind, text: str) -> None:
    bars = "".join(f"\rEpoch 1:  {n}%|█   | {n}/100 [00:{n:02}<00:10, 9.1it/s]" for n in range(20))
    log = f"\x1b[32mINFO\x1b[0m start{bars}\n{TRACEBACK}{text}\n\x1b[31mfailed\x1b[0m\n"
    assert read_log(log)[0].kind is kind


def test_the_table_is_large_enough_and_has_all_kinds_of_memory() -> None:
    assert len(MEMORY) >= 30
    assert len(OTHER) >= 10
    assert all(CAUSES[kind].is_memory for kind, _, _ in MEMORY)
    assert not any(CAUSES[kind].is_memory for kind, _, _ in (*OTHER, *NUMBERS))
    seen = {kind for kind, _, _ in MEMORY}
    symptoms = {kind for kind in FailureKind if CAUSES[kind].family is Family.SYMPTOM}
    assert {kind for kind in FailureKind if CAUSES[kind].is_memory} == seen | symptoms


def test_every_kind_has_one_cause_with_words() -> None:
    assert set(CAUSES) == set(FailureKind)
    assert all(
        cause.kind is kind and cause.title and cause.why.endswith(".") and cause.fix for kind, cause in CAUSES.items()
    )


def test_the_numbers_are_read() -> None:
    (found,) = read_log(TEXT["torch 2.6 on a rank, beside another process"])
    assert found.figures["asked"] == 86 * MIB
    assert found.figures["capacity"] == pytest.approx(39.39 * GIB, rel=1e-6)
    assert (found.figures["others"], found.figures["other_pid"]) == (17.5 * GIB, 90210)
    assert (found.figures["rank"], found.figures["device"]) == (3, 3)


def test_another_process_is_named_with_its_number() -> None:
    (found,) = read_log(TEXT["torch 2.6 on a rank, beside another process"])
    assert any("17.5 GiB of the GPU is held by process 90210" in line for line in found.detail)
    assert found.fix[:2] == (
        "End process 90210, wait for it, or use another GPU (CUDA_VISIBLE_DEVICES); see whose it is:",
        "$ ps -o pid,user,etime,args -p 90210",
    )


def test_other_processes_are_no_cause_where_the_gpu_had_room_and_only_a_cap_was_reached() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 "
        "GiB of which 117.56 GiB is free. Process 7800 has 6.63 GiB memory in use. Including non-PyTorch memory, this "
        "process has 712.00 MiB memory in use. 3.10 GiB allowed; Of the allocated memory 150.00 MiB is allocated by "
        "PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated."
    )
    (found,) = read_log(text)
    assert not any("held by" in line for line in found.detail)
    assert any("may use only 3.1 GiB of 140 GiB" in line for line in found.detail)


def test_in_a_container_the_process_itself_is_no_other_one() -> None:
    (found,) = read_log(TEXT["a notebook, without the module's name"])
    assert "others" not in found.figures
    assert not any("held by" in line for line in found.detail)


@pytest.mark.parametrize(
    ("name", "words", "fix"),
    [
        ("torch 2.0", "1.39 GiB is reserved and unused", "expandable_segments"),
        ("torch 2.9, private pools and a share", "may use only 19.8 GiB of 79.2 GiB", "memory_fraction(1.0)"),
        ("larger than the GPU", "larger than the whole GPU", "in chunks"),
        ("spilled", "had spilled into the computer's RAM", "Sysmem Fallback"),
        ("refused though free", "More was free than it asked for", "smaller pieces"),
    ],
)
def test_what_is_special_is_said_with_what_to_do(name: str, words: str, fix: str) -> None:
    (found,) = read_log(TEXT[name])
    assert any(words in line for line in found.detail), found.detail
    assert any(fix in line for line in found.fix)


def test_the_first_cause_comes_before_what_follows_from_it() -> None:
    log = (
        TEXT["NCCL"]
        + "\n[rank1]: "
        + TRACEBACK
        + "[rank1]: "
        + TEXT["torch 2.1, with its spelling"]
        + "\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    kinds = [found.kind for found in read_log(log)]
    assert kinds[0] is FailureKind.CUDA_OOM
    assert set(kinds[1:]) == {FailureKind.RANK_TIMEOUT, FailureKind.PEER_DIED}
    assert read_log(log)[0].figures["rank"] == 1


def test_a_failure_that_the_run_survived_comes_after_the_one_that_ended_it() -> None:
    progress = "".join(f"epoch {n} loss 0.{n} 3.1it/s\n" for n in range(60))
    end = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)"
    log = f"{TEXT['torch 2.0']}\nretrying with batch 8\n{progress}{TRACEBACK}{end}"
    ended, survived = read_log(log)
    assert (ended.kind, survived.kind) == (FailureKind.SHAPE, FailureKind.CUDA_OOM)
    assert survived.detail[0] == "The run went on for long after this."
    assert read_log(TRACEBACK + "KeyError: 'x'\n" + progress) == ()


def test_of_two_failures_of_one_kind_the_one_that_ended_the_run_is_told() -> None:
    progress = "".join(f"epoch {n} loss 0.{n} 3.1it/s\n" for n in range(60))
    first, last = TEXT["torch 2.0"], TEXT["torch 2.1, with its spelling"]
    (found,) = read_log(f"{first}\nretrying\n{progress}{TRACEBACK}{last}\n")
    assert found.figures["device"] == 1
    assert not any("went on" in line for line in found.detail)
    (both,) = read_log(f"{first}\n{progress}{last}\n{progress}")
    assert both.detail[0] == "The run went on for long after this."


def test_a_dead_worker_is_explained_by_the_kernel_s_own_words() -> None:
    log = TEXT["a worker without a word"] + "\n" + TEXT["dmesg"]
    assert [found.kind for found in read_log(log)] == [FailureKind.HOST_KILL, FailureKind.WORKER_GONE]


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
def test_harmless_words_are_not_taken_for_failures(text: str) -> None:
    assert read_log(text) == ()


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (TEXT["requests gives up"], "Traceback (most recent call last):\nKeyError: 'names'", FailureKind.PYTHON_ERROR),
        (TEXT["a model behind a gate"], "FileNotFoundError: [Errno 2] No such file: 'a'", FailureKind.MISSING_FILE),
        (TEXT["an extension of torch"], "torch.cuda.OutOfMemoryError: CUDA out of memory.", FailureKind.CUDA_OOM),
        (TEXT["requests gives up"], TEXT["a hub that can't be reached"], FailureKind.NETWORK),
        ("Segmentation fault (core dumped)", TEXT["Jupyter says that its kernel died"], FailureKind.CRASH),
        ("", "The kernel for My own training.ipynb appears to have died.", FailureKind.NOTEBOOK_DIED),
        (
            "Traceback (most recent call last):\nKeyError: 1",
            TEXT["nbconvert finds its kernel dead"],
            FailureKind.NOTEBOOK_DIED,
        ),
    ],
)
def test_what_a_program_went_on_after_is_not_what_ended_it(before: str, after: str, kind: FailureKind) -> None:
    assert read_log(f"{before}\n{after}\n")[0].kind is kind


def test_lines_broken_by_a_terminal_are_put_together() -> None:
    text = TEXT["torch 2.1, with its spelling"]
    broken = "\n".join(text[at : at + 40] for at in range(0, len(text), 40))
    broken = broken.replace("CUDA out of memory", "CUDA out\nof memory")
    assert read_log(broken)[0].kind is FailureKind.CUDA_OOM
    assert read_log(text.replace(" of ", "\nof "))[0].figures["free"] == pytest.approx(1.07 * GIB, rel=1e-3)


def test_the_last_error_of_an_unknown_text_is_shown() -> None:
    assert read_log("x\nRuntimeError: the frobnicator is open\n") == ()
    assert last_error("x\nRuntimeError: the frobnicator is open\n") == "RuntimeError: the frobnicator is open"
    assert last_error("nothing") is None


def test_megabytes_take_a_second() -> None:
    line = (
        "2026-11-15 10:00:00 INFO epoch 3 step 1234 loss=0.1234 lr=1e-3 memory 10.2 GiB it/s=3.1 inf=0 nan=0 -9 137\n"
    )
    log = line * 90_000 + TRACEBACK + TEXT["torch 2.1, with its spelling"] + "\n"
    assert len(log) > 9_000_000
    began = time.process_time()
    assert read_log(log)[0].kind is FailureKind.CUDA_OOM
    assert time.process_time() - began < 3.0  # a second on an idle machine


def test_one_line_of_megabytes_is_read_too() -> None:
    log = "x" * 3_000_000 + " CUDA out of memory. Tried to allocate 2.00 GiB " + "y" * 3_000_000
    assert read_log(log)[0].figures["asked"] == 2 * GIB


@given(st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for found in read_log(text + " CUDA out of memory. Tried to allocate " + text):
        assert found.evidence == found.evidence.strip()


def test_the_end_that_a_library_makes_comes_after_its_reason() -> None:
    end = "Aborted (core dumped)\n"
    for kind, name in (
        (FailureKind.BAD_ALLOC, None),
        (FailureKind.RANK_TIMEOUT, "NCCL"),
        (FailureKind.PEER_DIED, "gloo"),
    ):
        text = next(text for one, title, text in MEMORY if one is kind and name in {None, title})
        assert [found.kind for found in read_log(f"{text}\n{end}")] == [kind, FailureKind.ABORTED]


def test_advice_and_prose_are_no_scheduler() -> None:
    for text in (
        "Note: if this prints Out Of Memory, ask for more\n",
        "the request exceeded limit of 10 per second\n",
        "h_vmem=16G was asked for\n",
        "The mission was Aborted by the user interface, epoch 3\n",
    ):
        assert read_log(text) == (), text
