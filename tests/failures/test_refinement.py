from __future__ import annotations

import pytest

from oomph.failures import FailureKind, read_log

FULL = "OSError: [Errno 28] No space left on device"
DF = "\n\n$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\n"
ROOT = "/dev/root       194G  194G     0 100% /"
SHM = "tmpfs            94G  {}   94G   {}% /dev/shm"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{FULL}{DF}{ROOT}\n{SHM.format(0, 0)}", FailureKind.DISK_FULL),
        (f"{FULL}: '/data/ckpt.pt'{DF}{SHM.format(0, 0)}", FailureKind.DISK_FULL),
        (f"docker run --shm-size=16g image\n{FULL}", FailureKind.DISK_FULL),
        (f"{FULL}{DF}/dev/root       194G  100G    94G 52% /\n{SHM.format('94G', 100)}", FailureKind.SHM_FULL),
        (f"{FULL}: '/dev/shm/torch_12_34'{DF}{ROOT}", FailureKind.SHM_FULL),
        (f"NCCL WARN Error while creating shared memory\n{FULL}", FailureKind.SHM_FULL),
        (f"{FULL}: '/torch_4711_92'", FailureKind.SHM_FULL),
    ],
)
def test_no_space_is_on_the_disk_or_in_shared_memory(text: str, kind: FailureKind) -> None:
    assert read_log(text)[0].kind is kind


@pytest.mark.parametrize(
    ("limit", "kind"), [("33554432", FailureKind.ADDRESS_SPACE), ("unlimited", FailureKind.MAPPING_LIMIT)]
)
def test_a_mapping_that_a_limit_refuses_is_not_one_too_many(limit: str, kind: FailureKind) -> None:
    error = "RuntimeError: unable to mmap 13476838400 bytes from file </models/a.bin>: Cannot allocate memory (12)"
    assert read_log(f"{error}\n$ ulimit -v\n{limit}")[0].kind is kind


@pytest.mark.parametrize(
    ("requested", "kind"), [("26.37", FailureKind.CUDA_OOM), ("926.37", FailureKind.IMPOSSIBLE_SIZE)]
)
def test_what_fits_on_no_gpu_is_a_wrong_shape(requested: str, kind: FailureKind) -> None:
    text = f"CUDA out of memory. Tried to allocate {requested} GiB. GPU 0 has a total capacity of 11.99 GiB"
    assert read_log(f"x\nRuntimeError: {text}")[0].kind is kind


def test_a_file_that_was_not_written_is_most_likely_a_full_disk() -> None:
    error = "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file data/41"
    assert not read_log(error)[0].is_sure
    assert read_log(f"{FULL}\n{error}")[0].is_sure
