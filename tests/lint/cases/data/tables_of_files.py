import csv
import json

import cv2
import open_clip
import rasterio
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def read_scene(path):
    with rasterio.open(path) as source:
        return source.read()


class WrongScenes(Dataset):
    def __init__(self, table, folder):
        rows = list(csv.DictReader(open(table)))
        self.photos = [cv2.imread(f"{folder}/{row['image']}.jpeg") for row in rows]  # expect: dataset-in-memory
        self.scenes = [read_scene(row["scene"]) for row in rows]  # expect: dataset-in-memory

    def __getitem__(self, i):
        return self.photos[i], self.scenes[i]


class RightPairs(Dataset):
    def __init__(self, table, preprocess, tokenizer):
        self.table, self.preprocess, self.tokenizer = json.load(open(table)), preprocess, tokenizer

    def __getitem__(self, i):
        row = self.table[i]
        return self.preprocess(Image.open(row["file"])), self.tokenizer([row["caption"]])[0]


def right_loader(table):
    _, _, preprocess = open_clip.create_model_and_transforms("ViT-B-32")
    return DataLoader(RightPairs(table, preprocess, open_clip.get_tokenizer("ViT-B-32")), batch_size=128)
