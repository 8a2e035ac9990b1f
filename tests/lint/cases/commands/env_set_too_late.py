import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch

os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # expect: env-set-too-late
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
model = torch.nn.Linear(3, 3).to(device)
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # expect: env-set-too-late


def main(gpu):
    os.environ["WORLD_SIZE"] = "1"
    x = torch.zeros(3).cuda()
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")  # expect: env-set-too-late
    os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID")  # expect: env-set-too-late
    return x


def start_workers(command):
    import subprocess

    torch.cuda.synchronize()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    return subprocess.run(command)
