from __future__ import annotations

import pytest

from oomph.failures import FailureKind, Finding, Resource, read_log

DISK = "OSError: [Errno 28] No space left on device: '/data/cache/{}.npy'"
INODES = "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/sdb1 244195328 {} {}  {}% /data"
NUMPY = "numpy.core._exceptions.MemoryError: Unable to allocate 1.07 GiB for an array with shape (12000, 12000)"
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def first(text: str) -> Finding:
    return read_log(text)[0]


def test_a_file_system_without_inodes_has_too_many_files() -> None:
    finding = first(f"{DISK}\n$ df -i /data\n{INODES.format(244195328, 0, 100)}")
    assert "no inodes" in finding.details[0]
    assert "--inodes" in finding.advice[0].command


def test_free_inodes_are_no_evidence() -> None:
    finding = first(f"{DISK}\n$ df -i /data\n{INODES.format(1000, 244194328, 1)}")
    assert finding.details == ()
    assert "df -h" in finding.advice[0].command


@pytest.mark.parametrize(
    ("beside", "resource", "command"),
    [
        ("$ cat /proc/sys/vm/overcommit_memory\n2", Resource.COMMIT, "vm.overcommit_memory=0"),
        ("'3.7.4 [MSC v.1916 32 bit (Intel)]'", Resource.ADDRESS_SPACE, "calcsize"),
        ("$ cat /proc/sys/vm/overcommit_memory\n0", Resource.RAM, "float32"),
        ("the data is 32 bit float", Resource.RAM, "float32"),
    ],
)
def test_limits_beside_a_refused_allocation(beside: str, resource: Resource, command: str) -> None:
    finding = first(f"{NUMPY}\n{beside}")
    assert finding.resource is resource
    assert any(command in advice.command for advice in finding.advice[:1])


def test_a_merge_that_multiplies_rows_is_named() -> None:
    finding = first(f'  File "/opt/pandas/core/reshape/merge.py", line 1748, in get_join_indexers\n{NUMPY}')
    assert "validate=" in finding.advice[0].command


def test_a_warning_before_the_kill_explains_it() -> None:
    finding = first("UserWarning: not enough memory to store the complete replay buffer 56.45GB > 14.92GB\nKilled")
    assert finding.details[0].startswith("The replay buffer needs 56.45GB, and 14.92GB")
    assert "buffer_size" in finding.advice[0].command


def test_a_process_in_a_table_of_nvidia_smi_is_named() -> None:
    row = "|    0      4410      C   ...onda3/envs/tf2/bin/python              10359MiB |"
    finding = first(f"{CUDA}\n{row}")
    assert finding.details[0] == "nvidia-smi shows process 4410 with 10.1 GiB of the GPU."
    assert "4410" in finding.advice[0].command
    assert first(f"{CUDA}\n{row.replace('10359', '  259')}").details[0].startswith("The program requested")


def test_memory_without_a_process_is_held_by_somebody_who_is_not_listed() -> None:
    table = (
        "| 30%   39C    P8    27W / 350W |  {}MiB / 24268MiB |      0%      Default |\n|  No running processes found |"
    )
    assert "fuser" in first(f"{CUDA}\n{table.format(24113)}").advice[0].command
    assert not any("fuser" in advice.command for advice in first(f"{CUDA}\n{table.format(12)}").advice)


def test_a_crash_with_frames_is_located() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/w/augment.py", line 58 in warp\n'
        '  File "/lib/torch/utils/data/_utils/worker.py", line 287 in _worker_loop'
    )
    finding = first(text)
    assert finding.kind is FailureKind.CRASH
    assert finding.details == ("It crashed in a loader worker, in warp at line 58 of /w/augment.py.",)
    assert not any("faulthandler" in advice.command for advice in finding.advice)


def test_ranks_on_one_gpu_are_told_apart_from_strangers() -> None:
    message = (
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU {} has a total "
        "capacity of 39.39 GiB of which 11.06 MiB is free. Process 5101 has 21.90 GiB memory in use. Including "
        "non-PyTorch memory, this process has 5.79 GiB memory in use."
    )
    assert "LOCAL_RANK" in first(message.format(0)).advice[0].command
    assert "5101" in first(message.format(3)).advice[0].command
