from __future__ import annotations

import pytest

from oomph.failures import FailureKind, read_log

ARTICLE = """How Linux picks a victim

When the kernel finds no free page, it ends a process. Every process has a score, which is the sum of its pages.
The one with the highest score gets the signal, and the log says "Out of memory: Killed process 123 (python)".
With cgroups the search covers only the group, and the line says "Memory cgroup out of memory".
Set the score of a process to -1000 if it must never be chosen.
"""
RELEASE_NOTES = """Heron 2.4 release notes

Fixes
* CUDA out of memory. Tried to allocate 2.00 GiB: this message has a hint now.
"""
CHANGELOG = """## [1.4.0] - 2026-01-31
### Fixed
- RuntimeError: CUDA out of memory in `evaluate()`
"""
DIFF = """diff --git a/guard.py b/guard.py
@@ -1,2 +1,3 @@
 PHRASES = (
+    "DefaultCPUAllocator: can't allocate memory",
 )
"""
TABLE = """| Message | Meaning |
|---|---|
| DefaultCPUAllocator: can't allocate memory | RAM is full |
"""
ALERTS = """  - alert: TrainerOutOfMemory
    expr: kube_pod_container_status_last_terminated_reason{reason="OOMKilled"} == 1
"""
COMMAND = "ana@node7:~/runs$ grep -c 'RuntimeError: CUDA out of memory' train.log\n0\n"
TEST_RUN = "tests/test_guard.py::test_message[std::bad_alloc] PASSED [ 23%]\n"
CODE = "Is `raise torch.cuda.OutOfMemoryError('CUDA out of memory.')` right in a test?\n"
GUIDE = "slurmstepd: error: Detected 1 oom_kill event in StepId=<id>. Some of the step tasks have been OOM Killed.\n"
MENTIONS = {
    "article": ARTICLE,
    "release notes": RELEASE_NOTES,
    "changelog": CHANGELOG,
    "diff": DIFF,
    "table": TABLE,
    "alerts": ALERTS,
    "command": COMMAND,
    "test run": TEST_RUN,
    "code": CODE,
    "guide": GUIDE,
}
FAILURE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize("text", MENTIONS.values(), ids=MENTIONS)
def test_texts_about_failures_report_none(text: str) -> None:
    assert read_log(text) == ()


@pytest.mark.parametrize("text", MENTIONS.values(), ids=MENTIONS)
def test_failure_after_them_is_found(text: str) -> None:
    findings = read_log(f"{text}\nTraceback (most recent call last):\n{FAILURE}")
    assert FailureKind.CUDA_OOM in {finding.kind for finding in findings}


@pytest.mark.parametrize(
    "words",
    ["I ran it twice.", "My card has 8 GB.", "Any ideas?", "2026-03-01 10:22:01 step 300", "Epoch 3: 4.1it/s"],
)
def test_article_in_which_somebody_has_the_failure_reports_it(words: str) -> None:
    findings = read_log(f"{ARTICLE}{words}\n")
    assert FailureKind.OOM_KILL in {finding.kind for finding in findings}


def test_few_sentences_are_no_article() -> None:
    (finding,) = read_log(
        "Training stops after 40 minutes with CUDA out of memory. The batch is 16, the card has 12 GB.\n"
    )
    assert finding.kind is FailureKind.CUDA_OOM


def test_command_that_was_killed_is_found() -> None:
    (finding,) = read_log("$ python train.py  12%|# | 3/24 [00:10<01:00, 2.1it/s]Killed\n")
    assert finding.kind is FailureKind.OOM_KILL


def test_what_a_program_prints_in_words_is_no_article() -> None:
    text = (
        "loading the model from the checkpoint\nstarting the training of the model\nsomething is wrong with the GPU\n"
        "CUDA Error: out of memory\ncleaning up the files and the cache\nexiting because of the error"
    )
    assert read_log(text)[0].cause.is_memory
