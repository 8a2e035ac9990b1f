"""The loaders of a run, and the CPU cores they use."""

from __future__ import annotations

import torch

from ...data import Cache, Loader, LoaderOptions, Shard, default_budget, read_resources, usable_cores
from ...distributed import DistContext
from ..dataset import IndexedSplit, LoadConfig, MosaicSamples, collate_boxes, tile_train_loader, tiling
from ..inference import validation_loader
from ..model import round_to_stride
from ._config import TrainConfig

_MAX_WORKERS = 16
_PREFETCHED_BATCHES = 4  # that worker processes prepare while an epoch is validated
_CACHE_FRACTION = 0.25  # of the available memory, for decoded images
_VAL_THREADS = 4


def build_train_loader(
    config: TrainConfig, split: IndexedSplit, device: torch.device, dist: DistContext, batch: int
) -> Loader:
    """Build the loader of training samples; `batch` is the batch of this rank."""
    imgsz, shard = round_to_stride(config.imgsz), Shard(dist.rank, dist.world_size)
    augmentation = config.hyp.augmentation
    if (tiles := tiling(config.tiles, imgsz)) is not None:  # threads suffice: tiles need little Python
        threads = config.workers if device.type == "cuda" else _loading_workers(config, device)
        load = LoadConfig(imgsz, batch, config.seed, shard, threads)
        return tile_train_loader(split, tiles, augmentation, load)
    return Loader(
        split.index,
        imgsz,
        batch,
        builder=MosaicSamples(split.labels, augmentation),
        collate=collate_boxes,
        shuffle=True,
        seed=config.seed,
        shard=shard,
        budget=_decode_budget(dist),
        options=_loader_options(config, split, device),
    )


def build_val_loader(config: TrainConfig, split: IndexedSplit, dist: DistContext, batch: int) -> Loader:
    """Build the loader of validation images; `batch` is the batch of this rank."""
    imgsz = round_to_stride(config.imgsz)
    load = LoadConfig(
        imgsz,
        batch,
        shard=Shard(dist.rank, dist.world_size),
        threads=_VAL_THREADS,
        budget=_decode_budget(dist),
    )
    return validation_loader(split, load, tiling(config.tiles, imgsz))


def limit_torch_threads(config: TrainConfig, device: torch.device) -> None:
    """Leave the loading cores to the loader: torch's threads wait for each other, so one without a core stalls all.

    Next to a GPU torch gets a single thread, because the workers use all cores.
    """
    cores = max(usable_cores() - _loading_workers(config, device), 1)
    torch.set_num_threads(1 if device.type == "cuda" else cores)


def _loader_options(config: TrainConfig, split: IndexedSplit, device: torch.device) -> LoaderOptions:
    """Use worker processes on a GPU (the GIL would stall training), threads on the CPU."""
    workers = _loading_workers(config, device)
    if device.type != "cuda":
        return LoaderOptions(threads=workers)
    return LoaderOptions(
        threads=config.workers or None,
        workers=workers,
        prefetch=_PREFETCHED_BATCHES,
        cache=_image_cache(config, split),
    )


def _loading_workers(config: TrainConfig, device: torch.device) -> int:
    """Return the number of threads or processes that load images; few on the CPU, where training needs the cores."""
    cores = usable_cores()
    default = min(max(cores - 2, 1), _MAX_WORKERS) if device.type == "cuda" else max(cores // 4, 1)
    return config.workers or default


def _image_cache(config: TrainConfig, split: IndexedSplit) -> Cache | None:
    """Cache decoded images if all of them fit easily: mosaics use each image four times per epoch."""
    size = len(split.index) * 3 * round_to_stride(config.imgsz) ** 2
    return Cache(None, size) if size < read_resources().memory * _CACHE_FRACTION else None


def _decode_budget(dist: DistContext) -> int | None:
    """Return the bytes that each of several ranks on a machine may decode in; a single rank leaves it to the loader."""
    return default_budget() // dist.local_world_size if dist.is_distributed else None
