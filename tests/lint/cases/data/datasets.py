import os
import pickle
import h5py
import numpy as np
import torch
import torchvision
from PIL import Image
from skimage import io
from torch.utils.data import DataLoader, Dataset, ConcatDataset
from torchvision.datasets import ImageFolder
import torchvision.transforms.functional as TF
import matplotlib.image as mpimg

class H5(Dataset):
    def __init__(self, path):
        f = h5py.File(path, "r")
        self.images = f["images"][:]  # expect: dataset-in-memory
        self.labels = f["labels"][:]
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]).float() / 255.0, self.labels[i]  # expect: float-on-host

class Seg(Dataset):
    def __init__(self, img_dir, mask_dir):
        self.ids = os.listdir(img_dir)
        self.img_dir, self.mask_dir = img_dir, mask_dir
    def __len__(self): return len(self.ids)
    def load(self, name):
        return io.imread(os.path.join(self.img_dir, name))
    def __getitem__(self, idx):
        image = self.load(self.ids[idx])
        image = image.transpose(2, 0, 1)
        image = np.asarray(image, dtype=np.float32)  # expect: float-on-host
        mask = np.array(Image.open(os.path.join(self.mask_dir, self.ids[idx])).convert("L"), dtype=np.float32)  # expect: float-on-host
        mask[mask == 255.0] = 1.0
        return image, mask

class Pre(Dataset):
    def __init__(self, root):
        self.root = root
        self.data = self._load_all()
    def _load_all(self):
        imgs = []
        for fn in sorted(os.listdir(self.root)):
            img = mpimg.imread(os.path.join(self.root, fn))
            imgs.append(img)  # expect: dataset-in-memory
        return imgs
    def __len__(self): return len(self.data)
    def __getitem__(self, i): return self.data[i]

class VOC(Dataset):
    def __init__(self, csv_file, S=7, B=2, C=20):
        self.annotations = pd.read_csv(csv_file)
        self.S, self.B, self.C = S, B, C
    def __len__(self): return len(self.annotations)
    def __getitem__(self, index):
        boxes = []
        with open(self.annotations.iloc[index, 1]) as f:
            for label in f.readlines():
                boxes.append([float(v) for v in label.split()])
        image = Image.open(self.annotations.iloc[index, 0])
        boxes = torch.tensor(boxes)
        label_matrix = torch.zeros((self.S, self.S, self.C + 5 * self.B))
        for box in boxes:
            label_matrix[0, 0, int(box[0])] = 1
        return image, label_matrix

voc_loader = DataLoader(VOC("a.csv"), batch_size=8, shuffle=True)

class Cap(Dataset):
    def __init__(self, caps, vocab):
        self.caps = caps; self.vocab = vocab
    def __len__(self): return len(self.caps)
    def __getitem__(self, i):
        num = [self.vocab["<s>"]]
        num += self.vocab.numericalize(self.caps[i])
        return torch.tensor(num)

def evaluate(net, dl, device):
    n = 0
    net.eval()
    with torch.no_grad():
        for x, y in dl:
            n += (net(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return n

def main():
    train_ds = ImageFolder("train")
    val_ds = ImageFolder("val")
    train_dl = DataLoader(train_ds, 32, shuffle=True, pin_memory=True)
    val_dl = DataLoader(val_ds, 32)
    net, opt, crit, dev = build()
    for ep in range(5):
        net.train()
        for xb, yb in train_dl:
            xb = xb.to(dev)  # expect: pin-without-non-blocking
            yb = yb.to(dev)
            opt.zero_grad()
            loss = crit(net(xb), yb)
            loss.backward()
            opt.step()
        evaluate(net, val_dl, dev)

if __name__ == "__main__":
    main()
