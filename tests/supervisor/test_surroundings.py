from __future__ import annotations

import pytest

from oomph.supervisor._surroundings import describe_surroundings


@pytest.mark.parametrize(
    ("command", "environ", "text"),
    [
        ("docker run --gpus all image", {}, "docker run --memory"),
        ("/usr/bin/podman exec box python train.py", {}, "podman run --memory"),
        ("srun -n 4 python train.py", {}, "srun oomph run"),
        ("torchrun --nproc-per-node 4 train.py", {}, "ranks on this machine"),
        ("python -m torch.distributed.run train.py", {}, "ranks on this machine"),
        ("accelerate launch train.py", {}, "ranks on this machine"),
        ("ssh box python train.py", {}, "below ssh"),
        ("python train.py", {"RANK": "2", "WORLD_SIZE": "8"}, "rank 2 of 8"),
        ("python train.py", {"SLURM_JOB_ID": "77", "SLURM_PROCID": "1"}, "Slurm job 77, task 1"),
    ],
)
def test_one_sentence_per_limit_of_supervision(command: str, environ: dict[str, str], text: str) -> None:
    sentences = [note for note in describe_surroundings(command.split(), environ) if text in note]
    assert len(sentences) == 1
    assert "\n" not in sentences[0]


def test_docker_commands_that_run_nothing_need_no_note() -> None:
    assert not any("docker" in note for note in describe_surroundings(["docker", "ps"], {}))
