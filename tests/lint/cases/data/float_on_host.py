import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


class AsType(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = cv2.imread(self.files[i])
        image = image.astype(np.float32) / 255.0  # expect: float-on-host
        return torch.from_numpy(image).permute(2, 0, 1)


class AsArray(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        pixels = np.array(Image.open(self.files[i]), dtype="float32")  # expect: float-on-host
        return torch.from_numpy(pixels)


class AsTensor(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        pixels = torch.from_numpy(np.asarray(Image.open(self.files[i]).convert("RGB")))
        return pixels.permute(2, 0, 1).float().div(255)  # expect: float-on-host


class InAMethod(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def read(self, path):
        picture = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        return np.float32(picture) / 127.5 - 1  # expect: float-on-host

    def __getitem__(self, i):
        return self.read(self.files[i])


class Doubles(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return np.array(Image.open(self.files[i])) / 255  # expect: float-on-host


class FromArchive(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return len(self.archive)

    def __getitem__(self, i):
        x = self.archive[i]
        return torch.as_tensor(x).to(torch.float32) / 255  # expect: float-on-host


# Right.


class Bytes(Dataset):
    def __init__(self, files, scores):
        self.files = files
        self.scores = scores

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = cv2.imread(self.files[i])
        score = np.float32(self.scores[i])
        threshold = torch.tensor(self.scores[i], dtype=torch.float32)
        return torch.from_numpy(image).permute(2, 0, 1), score, threshold


class Spectra(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        spectrum = np.load(self.files[i]).astype(np.float32)
        return torch.from_numpy(spectrum)


def train(model, loader, device):
    for images, labels in loader:
        images = images.to(device, non_blocking=True).float() / 255
        yield model(images), labels


def one_picture(model, path):
    image = cv2.imread(path)
    image = image.astype(np.float32) / 255.0
    return model(torch.from_numpy(image))


def color(value):
    return value / 255
