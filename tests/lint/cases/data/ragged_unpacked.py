import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import VOCDetection
from torchvision.io import read_image
from torchvision.transforms import functional


class Records(Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        path, boxes, label = self.records[index]
        return read_image(path), {"boxes": torch.as_tensor(boxes), "label": torch.as_tensor(label)}


class Voc(VOCDetection):
    def __getitem__(self, index):
        image, annotation = super().__getitem__(index)
        objects = annotation["annotation"]["object"]
        boxes = [[float(item["bndbox"][side]) for side in ("xmin", "ymin", "xmax", "ymax")] for item in objects]
        return functional.pil_to_tensor(image.resize((300, 300))), torch.tensor(boxes)


class Classes(Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        path, label = self.records[index]
        return read_image(path), torch.as_tensor(label)


def wrong_loaders(records):
    return (
        DataLoader(Records(records), batch_size=2, shuffle=True),  # expect: ragged-default-collate
        DataLoader(Voc("data"), batch_size=8, shuffle=True),  # expect: ragged-default-collate
    )


def right_loaders(records):
    return (
        DataLoader(Records(records), batch_size=2, shuffle=True, collate_fn=lambda samples: tuple(zip(*samples))),
        DataLoader(Classes(records), batch_size=8, shuffle=True),
    )
