import glob

import cv2
import numpy as np
from PIL import Image
from torch.utils.data import Dataset

SIZE = (224, 224)
SIDE = 256


class Pillow(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i]).convert("RGB")
        image = image.resize((224, 224))  # expect: resize-after-full-decode
        return np.asarray(image)


class Chained(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as file:
            return np.asarray(file.resize(SIZE, Image.BILINEAR))  # expect: resize-after-full-decode


class OpenCV(Dataset):
    def __init__(self, paths, size=320):
        self.paths = paths
        self.size = size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        picture = cv2.imread(self.paths[i])
        picture = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
        return cv2.resize(picture, (self.size, self.size))  # expect: resize-after-full-decode


def shrink(target):
    for file in glob.glob("photos/*.jpg"):
        photo = cv2.imread(file)
        small = cv2.resize(photo, dsize=(SIDE, SIDE), interpolation=cv2.INTER_AREA)  # expect: resize-after-full-decode
        cv2.imwrite(f"{target}/{file}", small)


class ThumbnailAfterConvert(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i]).convert("RGB")
        image.thumbnail((128, 128))  # expect: resize-after-full-decode
        return np.asarray(image)


# Right.


class Draft(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i])
        image.draft("RGB", (448, 448))
        return np.asarray(image.convert("RGB").resize((224, 224)))


class Reduced(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return cv2.resize(cv2.imread(self.paths[i], cv2.IMREAD_REDUCED_COLOR_4), (224, 224))


class Thumbnail(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i])
        image.thumbnail((128, 128))  # uses draft itself
        return np.asarray(image)


class CropFirst(Dataset):
    def __init__(self, paths, boxes):
        self.paths = paths
        self.boxes = boxes

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i])
        return np.asarray(image.crop(self.boxes[i]).resize((224, 224)))


class AnySize(Dataset):
    def __init__(self, paths, size):
        self.paths = paths
        self.size = size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return np.asarray(Image.open(self.paths[i]).resize(self.size))


def one_picture(path):
    return Image.open(path).resize((224, 224))
