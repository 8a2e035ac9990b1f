import os

import cv2
import nibabel as nib
import numpy as np
import pandas as pd
import rasterio
import SimpleITK as sitk
import tifffile
import torch
from rasterio.windows import Window
from torch.utils.data import Dataset


class WrongScans(Dataset):
    def __init__(self, cases):
        self.volumes, self.labels = [], []
        for case in cases:
            scan = nib.load(os.path.join(case, "ct.nii.gz"))
            self.volumes.append(scan.get_fdata())  # expect: dataset-in-memory
        self.masks = [sitk.GetArrayFromImage(sitk.ReadImage(f"{case}/seg.mha")) for case in cases]  # expect: dataset-in-memory

    def __len__(self):
        return len(self.volumes)

    def __getitem__(self, i):
        # Volumes have 16 bits, so that float32 is no waste.
        return torch.from_numpy(self.volumes[i].astype(np.float32))


class WrongScenes(Dataset):
    def __init__(self, folder):
        names = sorted(os.listdir(folder))
        self.scenes = [rasterio.open(os.path.join(folder, name)).read() for name in names]  # expect: dataset-in-memory
        self.slides = [tifffile.imread(os.path.join(folder, name)) for name in names]  # expect: dataset-in-memory

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, i):
        return self.scenes[i]


class WrongByMethod(Dataset):
    def __init__(self, csv_file, root):
        self.frame = pd.read_csv(csv_file)
        self.root = root
        self.cache = [self._read(i) for i in range(len(self.frame))]  # expect: dataset-in-memory
        self.masks = [cv2.imread(f"{root}/{name}") for name in self.frame.iloc[:, 1]]  # expect: dataset-in-memory

    def _read(self, i):
        return cv2.imread(os.path.join(self.root, self.frame.iloc[i, 0]))

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, i):
        image = self.cache[i]
        image = image.transpose((2, 0, 1)) / 255.0  # expect: float-on-host
        return torch.from_numpy(image)


class RightScans(Dataset):
    def __init__(self, cases, folder, crop=512):
        self.cases = cases
        self.scans = [nib.load(f"{case}/ct.nii.gz") for case in cases]  # lazy: only the headers
        self.shapes = [scan.shape for scan in self.scans]
        self.previews = []
        for name in os.listdir(folder):
            with rasterio.open(os.path.join(folder, name)) as source:
                self.previews.append(source.read(window=Window(0, 0, crop, crop)))

    def __len__(self):
        return len(self.cases)

    def __getitem__(self, i):
        volume = self.scans[i].get_fdata(dtype=np.float32)
        mask = sitk.GetArrayFromImage(sitk.ReadImage(f"{self.cases[i]}/seg.mha"))
        return torch.from_numpy(volume), torch.from_numpy(mask)


def right_statistics(cases):
    return [nib.load(f"{case}/ct.nii.gz").get_fdata().mean() for case in cases]


class RightMonths(Dataset):
    def __init__(self, table, root):
        self.df, self.root = pd.read_csv(table), root

    def __len__(self):
        return self.df["tile"].nunique()

    def __getitem__(self, i):
        sample_df = self.df[self.df["tile"] == i]
        return self._load_months(sample_df["file"].tolist())

    def _load_months(self, names):
        return torch.from_numpy(np.stack([rasterio.open(f"{self.root}/{name}").read() for name in names]))
