import os, random
import cv2
import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, DistributedSampler
from torchvision import transforms, datasets
import torch.multiprocessing as mp

class Mosaic(Dataset):
    def __init__(self, files, labels, size=640):
        self.files, self.labels, self.size = files, labels, size
        self.shapes = [Image.open(f).size for f in files]
        self.tf = transforms.Compose([transforms.ToTensor()])
        self.mosaic = True
    def __len__(self):
        return len(self.files)
    def load(self, i):
        im = cv2.imread(self.files[i])
        h0, w0 = im.shape[:2]
        r = self.size / max(h0, w0)
        if r != 1:
            im = cv2.resize(im, (int(w0 * r), int(h0 * r)))
        return im
    def __getitem__(self, i):
        ims = []
        for j in [i] + random.choices(range(len(self)), k=3):
            ims.append(self.load(j))
        scale = random.choice([224, 256])
        t = transforms.Compose([transforms.Resize(scale), transforms.ToTensor()])
        return t(Image.fromarray(ims[0])), self.labels[i]
    @staticmethod
    def collate(batch):
        return [torch.stack([b[0] for b in batch]), [b[1] for b in batch]]

def worker(rank, world, args):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    ds = Mosaic(args.files, args.labels)
    sampler = DistributedSampler(ds) if world > 1 else None
    train_loader = DataLoader(ds, batch_size=args.bs, sampler=sampler, shuffle=sampler is None, num_workers=8, pin_memory=True)
    for epoch in range(args.epochs):
        for x, y in train_loader:
            x = x.cuda(rank, non_blocking=True)
            y = y.cuda(rank, non_blocking=True)

@torch.inference_mode()
def predict(model, folder, device):
    model.eval()
    results = {}
    for name in os.listdir(folder):
        img = cv2.imread(os.path.join(folder, name))
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
        x = torch.from_numpy(img).permute(2, 0, 1)[None].to(device).float() / 255
        results[name] = model(x).argmax().item()
    return results

def hyper(ds, configs):
    for bs in configs:
        loader = DataLoader(ds, batch_size=bs, shuffle=True)
        for x, y in loader:
            pass

def bench(ds):
    for workers in range(0, 9, 2):
        train_loader = DataLoader(ds, batch_size=32, shuffle=True, num_workers=workers)
        for x in train_loader:
            pass

def stats(root):
    train_ds = datasets.ImageFolder(root, transforms.ToTensor())
    loader = DataLoader(train_ds, batch_size=64, num_workers=4)
    mean = 0.0
    for x, _ in loader:
        mean += x.mean((0, 2, 3))
    return mean / len(loader)

def viz(root):
    train_ds = datasets.ImageFolder(root)
    fig_images = [np.array(Image.open(p)) for p, _ in train_ds.samples[:9]]
    return fig_images

if __name__ == "__main__":
    mp.spawn(worker, args=(2, None), nprocs=2)
