"""DistributedDataParallel, as torchrun starts it: one process per GPU."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--views", action="store_true")
    arguments = parser.parse_args()
    dist.init_process_group("nccl")
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(rank)
    model = DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=arguments.views)
    optimizer = torch.optim.AdamW(model.parameters())
    dataset = TensorDataset(torch.randn(64, 512))
    loader = DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset))
    try:
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            for (x,) in loader:
                x = x.to(rank, non_blocking=True)
                with model.no_sync():
                    model(x).square().mean().backward()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                total = loss.detach().clone()
                dist.all_reduce(total)
                gathered = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
                dist.all_gather(gathered, total)
                dist.barrier()
    except RuntimeError as error:
        raise SystemExit(f"training failed: {error}") from error
    torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
