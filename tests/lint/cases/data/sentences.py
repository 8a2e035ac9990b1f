import torch
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, documents, numbers):
        self.documents, self.numbers = documents, numbers

    def __getitem__(self, i):
        tokens, kind = self.documents[i]
        return torch.tensor([self.numbers.get(token, 1) for token in tokens]), kind


def loaders(documents, numbers):
    wrong = DataLoader(Sentences(documents, numbers), batch_size=16, shuffle=True)  # expect: ragged-default-collate
    single = DataLoader(Sentences(documents, numbers), batch_size=1)
    return wrong, single
