"""Several ranks: votes, gradients averaged over DDP's ranks, FSDP2's shards and their checkpoints."""

from ._distributed import BUCKET_BYTES, Ranks, connect_ranks
from ._sharded_checkpoint import load_sharded, save_sharded

__all__ = ["BUCKET_BYTES", "Ranks", "connect_ranks", "load_sharded", "save_sharded"]
