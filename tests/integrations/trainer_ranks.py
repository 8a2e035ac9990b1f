"""A rank of a Trainer: `torchrun --nproc-per-node 2 -m tests.integrations.trainer_ranks KIND FOLDER`.

The kinds are plain; errors on the second rank, which are guarded; an error that ends the run; and its resumption.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from oomph.errors import RetriesExhausted

from . import conftest  # noqa: F401  it declares torchvision's operators
from .forwards import Forwards

FAILING = {"errors": [2, 5], "stop": [5]}


def main() -> None:
    import transformers

    from oomph.integrations.transformers import GuardedTrainer

    from .trainers import arguments, language_model, texts

    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    model, is_second = language_model(), os.environ["RANK"] == "1"
    forwards = Forwards(FAILING.get(kind, ()) if is_second else (), from_then_on=kind == "stop")
    model.transformer.h[1].register_forward_pre_hook(forwards)  # type: ignore[union-attr, index]
    trainer_class = transformers.Trainer if kind == "plain" else GuardedTrainer
    args = arguments(folder / "out", ddp_backend="gloo")
    trainer = trainer_class(model=model, args=args, train_dataset=texts(40))
    try:
        trainer.train(resume_from_checkpoint=True if kind == "resume" else None)
    except RetriesExhausted:
        if kind != "stop":
            raise
    if not is_second:
        torch.save(model.state_dict(), folder / f"{kind}.pt")


if __name__ == "__main__":
    main()
    # A thread of gloo that frees the tensors of the last log while Python ends aborts the process (torch 2.13).
    sys.stdout.flush()
    os._exit(0)
