import os

import torch


def select(gpu):
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    assert torch.cuda.is_available()
    return torch.device("cuda")


def build():
    return torch.nn.Linear(3, 3).cuda()


def main():
    device = select("0")
    model = build()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # expect: env-set-too-late
    return model, device


def restored():
    before = os.environ["CUDA_VISIBLE_DEVICES"]
    try:
        return build()
    finally:
        os.environ["CUDA_VISIBLE_DEVICES"] = before


if __name__ == "__main__":
    main()


def load(name):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(name, device_map="auto")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # expect: env-set-too-late
    return model


def move(batch):
    batch = batch.cuda(non_blocking=True)
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # expect: env-set-too-late
    return batch
