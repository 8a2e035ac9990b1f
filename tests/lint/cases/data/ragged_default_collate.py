import json
import xml.etree.ElementTree as ET

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision.io import read_image


class Boxes(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        boxes, labels = [], []
        for item in ET.parse(self.files[i]).getroot().findall("object"):
            boxes.append([float(item.find("bndbox").find(side).text) for side in ("xmin", "ymin", "xmax", "ymax")])
            labels.append(1)
        target = {"boxes": torch.tensor(boxes), "labels": torch.tensor(labels)}
        return read_image(self.files[i]), target


class Yolo(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        labels = np.loadtxt(self.files[i]).reshape(-1, 5)
        return read_image(self.files[i]), torch.from_numpy(labels)


class Lookup(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.annotations = json.load(file)

    def __len__(self):
        return len(self.annotations)

    def __getitem__(self, i):
        ann = self.annotations[i]
        return read_image(ann["file"]), torch.as_tensor(ann["boxes"])


class OneClass(Dataset):
    def __init__(self, files, classes):
        self.files = files
        self.classes = classes

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        views = []
        for _ in range(2):
            views.append(read_image(self.files[i]))
        return torch.stack(views), self.classes[i]


class Padded(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        labels = np.loadtxt(self.files[i]).reshape(-1, 5)
        padded = np.zeros((100, 5))
        padded[: len(labels)] = labels
        return read_image(self.files[i]), torch.from_numpy(padded)


def collate(samples):
    return list(zip(*samples))


def wrong(files):
    first = DataLoader(Boxes(files), batch_size=4, shuffle=True)  # expect: ragged-default-collate
    dataset = Yolo(files)
    second = DataLoader(dataset, batch_size=2, shuffle=True)  # expect: ragged-default-collate
    third = DataLoader(Lookup("a.json"), 16, shuffle=True)  # expect: ragged-default-collate
    return first, second, third


def right(files, classes):
    first = DataLoader(Boxes(files), batch_size=4, shuffle=True, collate_fn=collate)
    second = DataLoader(Boxes(files), batch_size=1, shuffle=True)
    third = DataLoader(OneClass(files, classes), batch_size=4, shuffle=True)
    fourth = DataLoader(Padded(files), batch_size=4, shuffle=True)
    fifth = DataLoader(Yolo(files), shuffle=True)
    return first, second, third, fourth, fifth, random_split
