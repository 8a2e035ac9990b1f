import torch, os, cv2, numpy as np
from torch.utils.data import DataLoader, Dataset
import torchvision.transforms as T

class Photos(Dataset):
    def __init__(self, root):
        self.items = [os.path.join(root, f) for f in os.listdir(root) if f.endswith(".jpg")]
    def __len__(self):
        return len(self.items)
    def __getitem__(self, idx):
        im = cv2.imread(self.items[idx])[:, :, ::-1]
        im = cv2.resize(im, (224, 224))  # expect: resize-after-full-decode
        t = torch.from_numpy(im.astype("float32") / 255).permute(2, 0, 1)  # expect: float-on-host
        return t

class Views:
    def __init__(self, tf): self.tf = tf
    def __call__(self, x): return self.tf(x), self.tf(x)

aug = T.Compose([T.RandomResizedCrop(512), T.ToTensor()])
# machine: 16 GB RAM, T4
ds = torchvision.datasets.ImageFolder("imgs", Views(aug))
loader = DataLoader(ds, batch_size=64, shuffle=True, num_workers=12, prefetch_factor=10)  # expect: prefetch-over-budget, workers-without-main-guard

def train_one(ep):
    for (a, b), _ in loader:
        a = a.cuda(); b = b.cuda()
        opt.zero_grad()
        loss = crit(net(a), net(b))
        loss.backward()
        opt.step()

for ep in range(10):
    train_one(ep)
