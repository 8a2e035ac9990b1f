import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def blocking(use, dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True, pin_memory=True)
    for images, labels in loader:
        images = images.to(device)  # expect: pin-without-non-blocking
        labels = labels.to(device)
        yield use(images), labels


def blocking_dict(use, dataset):
    options = {"batch_size": 8, "pin_memory": True}
    loader = DataLoader(dataset, **options)
    for step, batch in enumerate(tqdm(loader)):
        batch = {key: value.cuda() for key, value in batch.items()}  # expect: pin-without-non-blocking
        yield step, use(**batch)


def blocking_items(use, dataset):
    loader = DataLoader(dataset, 8, pin_memory=torch.cuda.is_available())
    for batch in loader:
        x = batch["image"].to(device=device)  # expect: pin-without-non-blocking
        yield use(x)


def step_through(use, batches):
    for x, y in batches:
        x, y = x.to("cuda:0"), y.to("cuda:0")  # expect: pin-without-non-blocking
        yield use(x), y


def caller(use, dataset):
    batches = DataLoader(dataset, batch_size=16, pin_memory=True)
    return step_through(use, batches)


# Right.


def not_blocking(use, dataset):
    loader = DataLoader(dataset, batch_size=8, shuffle=True, pin_memory=True)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        yield use(images), labels.cuda(non_blocking=True)


def not_pinned(use, dataset):
    loader = DataLoader(dataset, batch_size=8)
    for images, labels in loader:
        yield use(images.to(device)), labels.to(device)


def to_type(use, dataset):
    loader = DataLoader(dataset, batch_size=8, pin_memory=True)
    for images, labels in loader:
        images = images.to(torch.float32)
        yield use(images.to("cpu")), labels


def other_loader(use, loader):
    for images, labels in loader:
        yield use(images.to(device)), labels
