import glob
import os
from pathlib import Path

import cv2
import imageio.v3 as iio
import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset
from tqdm import tqdm

ROOT = Path("data")


class DecodedAtTheStart(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).rglob("*.png"))
        self.images = [np.asarray(Image.open(path).convert("RGB")) for path in self.paths]  # expect: dataset-in-memory

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i])


class DecodedInALoop(Dataset):
    def __init__(self, folder, transform=None):
        self.samples = []
        for label, name in enumerate(os.listdir(folder)):
            for file in os.listdir(os.path.join(folder, name)):
                with Image.open(os.path.join(folder, name, file)) as picture:
                    rgb = picture.convert("RGB")
                self.samples.append((rgb, label))  # expect: dataset-in-memory

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


class FromATable(Dataset):
    def __init__(self, csv_file):
        table = pd.read_csv(csv_file)
        self.cache = {}
        for row in table.itertuples():
            self.cache[row.id] = cv2.imread(row.path)  # expect: dataset-in-memory
        self.labels = table["label"].to_numpy()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.cache[i], self.labels[i]


class ArrayInMemory(Dataset):
    def __init__(self):
        self.images = np.load("train_images.npy")  # expect: dataset-in-memory
        self.labels = np.load("train_labels.npy")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class GrowingCache(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.kept = {}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = cv2.imread(self.paths[i])  # expect: dataset-in-memory
        return self.kept[i]


def load_picture(path):
    picture = iio.imread(path)
    return picture[..., :3]


def load_folder(folder):
    files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".png")]
    pictures = np.stack([load_picture(file) for file in tqdm(files)])  # expect: dataset-in-memory
    return TensorDataset(torch.from_numpy(pictures))


def read_everything():
    everything = list(map(cv2.imread, glob.glob("data/*.png")))  # expect: dataset-in-memory
    return torch.stack([torch.from_numpy(array) for array in everything])


def grow():
    stack = []
    for path in tqdm(sorted(ROOT.glob("*/*.npy"))):
        stack.append(np.load(path))  # expect: dataset-in-memory
    return torch.tensor(np.array(stack))


# Right.


class Lazy(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).rglob("*.png"))
        self.labels = [int(path.parent.name) for path in self.paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return np.asarray(Image.open(self.paths[i])), self.labels[i]


class MemoryMapped(Dataset):
    def __init__(self):
        self.images = np.load("train_images.npy", mmap_mode="r")
        self.labels = np.load("labels.npy")
        self.mean = np.load("mean.npy")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class Optional(Dataset):
    def __init__(self, root, cache_in_ram=False):
        self.paths = sorted(Path(root).rglob("*.png"))
        self.images = None
        if cache_in_ram:
            self.images = [np.asarray(Image.open(path)) for path in self.paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.images[i] if self.images else np.asarray(Image.open(self.paths[i]))


def batches(files, size):
    for start in range(0, len(files), size):
        yield np.stack([cv2.imread(file) for file in files[start : start + size]])


def sizes(folder):
    shapes = []
    for path in Path(folder).iterdir():
        image = Image.open(path)
        shapes.append(image.size)
    return shapes


def average(folder):
    total, count = 0, 0
    for file in glob.glob(f"{folder}/*.png"):
        total = total + cv2.imread(file).mean(axis=(0, 1))
        count += 1
    return total / count


def features(model, folder, device):
    vectors = []
    with torch.inference_mode():
        for path in Path(folder).glob("*.png"):
            image = torch.from_numpy(np.asarray(Image.open(path)))
            vectors.append(model(image.to(device)).cpu())
    return torch.stack(vectors)


def flushed(files, write):
    group = []
    for file in sorted(files):
        group.append(cv2.imread(file))
        if len(group) == 64:
            write(np.stack(group))
            group = []
    write(np.stack(group))


def first_ones():
    return [Image.open(path) for path in sorted(Path("data").glob("*.png"))[:16]]


def tables(folder):
    return [pd.read_csv(path) for path in Path(folder).glob("*.csv")]
