import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets import CocoDetection, ImageFolder

objects = CocoDetection("pictures", "objects.json", transform=transforms.PILToTensor())
wrong_objects = DataLoader(objects, batch_size=4, shuffle=True)  # expect: ragged-default-collate
right_objects = DataLoader(objects, batch_size=4, shuffle=True, collate_fn=list)

shorter_side = transforms.Compose([transforms.Resize(232), transforms.PILToTensor()])
wrong_sides = DataLoader(  # expect: ragged-default-collate
    ImageFolder("pictures", transform=shorter_side), batch_size=4, shuffle=True
)
cropped = transforms.Compose([transforms.Resize(232), transforms.CenterCrop(224), transforms.PILToTensor()])
right_cropped = DataLoader(ImageFolder("pictures", transform=cropped), batch_size=4, shuffle=True)
square = transforms.Compose([transforms.Resize((224, 224)), transforms.PILToTensor()])
right_square = DataLoader(ImageFolder("pictures", transform=square), batch_size=4, shuffle=True)


class Drawings(Dataset):
    def __init__(self, entries):
        self.entries = entries

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        entry = self.entries[index]
        return entry.number, torch.tensor(entry.boxes)


def load(entries):
    return DataLoader(Drawings(entries), batch_size=4, shuffle=True)  # expect: ragged-default-collate
