from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch

from oomph.files import write_atomically


@pytest.mark.skipif(os.name == "nt", reason="no such permissions")
@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_permissions_follow_the_umask(mask: int, expected: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "new" / "a.pt", lambda file: file.write(b"all"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "a.pt").stat().st_mode) == expected


@pytest.mark.parametrize("fsync", [True, False])
def test_failed_write_keeps_the_previous_file(*, fsync: bool, tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 100)
    write_atomically(path, lambda file: file.write(b"before"), fsync=fsync)
    with pytest.raises(ZeroDivisionError):
        write_atomically(path, lambda file: file.write(b"half") / 0, fsync=fsync)
    assert path.read_bytes() == b"before"
    write_atomically(path, lambda file: file.write(b"after"), fsync=fsync)
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_only_disk_errors_become_os_errors(tmp_path: Path) -> None:
    def run_out_of_memory(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError):
        write_atomically(tmp_path / "a.pt", run_out_of_memory)
    with pytest.raises(OSError, match="No such file"):
        write_atomically(tmp_path / "gone" / "a.pt", lambda file: file.write(b""), parents=False)
    assert not list(tmp_path.iterdir())
