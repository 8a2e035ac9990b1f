import albumentations as A
import torch
import torchvision.transforms as T
from albumentations.pytorch import ToTensorV2
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import Compose, v2


class InGetitem(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        transform = transforms.Compose([transforms.RandomCrop(224), transforms.ToTensor()])  # expect: transform-per-item
        return transform(Image.open(self.paths[i]))


class InAHelper(Dataset):
    def __init__(self, paths, size=224):
        self.paths = paths
        self.size = size

    def __len__(self):
        return len(self.paths)

    def augment(self, image):
        pipeline = A.Compose(  # expect: transform-per-item
            [A.RandomCrop(self.size, self.size), A.HorizontalFlip(p=0.5), ToTensorV2()]
        )
        return pipeline(image=image)["image"]

    def __getitem__(self, i):
        return self.augment(Image.open(self.paths[i]))


class WithList(Dataset):
    def __init__(self, paths, train):
        self.paths = paths
        self.train = train

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        steps = [v2.RandomHorizontalFlip(), v2.PILToTensor()]
        if self.train:
            return Compose(steps)(Image.open(self.paths[i]))  # expect: transform-per-item
        return v2.functional.pil_to_tensor(Image.open(self.paths[i]))


def applied(image):
    steps = T.Compose([T.RandomResizedCrop(224), T.ToTensor()])  # expect: transform-per-item
    return steps(image)


def build(dataset_class, root):
    return dataset_class(root, transform=applied)


# Right.


class Once(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.transform = transforms.Compose([transforms.RandomCrop(224), transforms.ToTensor()])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.transform(Image.open(self.paths[i]))


class DependsOnSample(Dataset):
    def __init__(self, paths, sizes):
        self.paths = paths
        self.sizes = sizes

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i])
        side = min(image.size)
        transform = T.Compose([T.CenterCrop(side), T.ToTensor()])
        return transform(image)


class BuiltOnDemand(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.transform = None

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        if self.transform is None:
            self.transform = T.Compose([T.RandomCrop(224), T.ToTensor()])
        return self.transform(Image.open(self.paths[i]))


def make_transform(size):
    return T.Compose([T.RandomCrop(size), T.ToTensor()])


def network(width):
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
