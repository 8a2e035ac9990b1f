import torch
from torch.utils.data import DataLoader
from skimage import io, img_as_float
from skimage.util import img_as_float32

def to_device(batch, device):
    return {k: v.to(device) for k, v in batch.items()}  # expect: pin-without-non-blocking

def fit(net, ds, opt, device):
    dl = DataLoader(ds, batch_size=4, shuffle=True, pin_memory=True)
    for batch in dl:
        batch = to_device(batch, device)
        opt.zero_grad()
        loss = net(**batch)
        loss.backward()
        opt.step()

class D(torch.utils.data.Dataset):
    def __init__(self, files): self.files = files
    def __len__(self): return len(self.files)
    def __getitem__(self, i):
        return img_as_float32(io.imread(self.files[i]))  # expect: float-on-host

def mk():
    return DataLoader(TrainDataset("x"), batch_size=8)  # expect: train-without-shuffle
