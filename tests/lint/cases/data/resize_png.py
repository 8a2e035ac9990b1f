import cv2
from torch.utils.data import Dataset


class Slides(Dataset):
    """PNG files have no reduced form: all pixels must be decoded."""

    def __init__(self, folder, count):
        self.folder = folder
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return cv2.resize(cv2.imread(f"{self.folder}/{i}.png"), (224, 224))
