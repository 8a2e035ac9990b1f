from pathlib import Path

import cv2
from joblib import Parallel, delayed
from torch.utils.data import DataLoader, Dataset

files = sorted(Path("pictures").glob("*.png"))
pictures = Parallel(n_jobs=4)(delayed(cv2.imread)(file) for file in files)  # expect: dataset-in-memory


def centered(picture):
    return (picture.astype("float32") - 127.5) / 127.5  # expect: float-on-host


class Pictures(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return centered(cv2.imread(self.names[index]))


class Sentences(Dataset):
    def __init__(self, lines, tokenizer):
        self.lines, self.tokenizer = lines, tokenizer

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return self.tokenizer(self.lines[index], return_tensors="pt")["input_ids"][0]


def load(lines, tokenizer):
    return DataLoader(Sentences(lines, tokenizer), batch_size=4, shuffle=True)  # expect: ragged-default-collate
