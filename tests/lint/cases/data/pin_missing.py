from torch.utils.data import DataLoader


def unpinned(use, dataset):
    loader = DataLoader(dataset, batch_size=8)
    for images, labels in loader:
        images = images.to("cuda", non_blocking=True)  # expect: pin-without-non-blocking
        yield use(images), labels


def unknown(use, loader, options, dataset):
    for images, labels in loader:
        yield use(images.to("cuda", non_blocking=True)), labels
    for images, labels in DataLoader(dataset, **options):
        yield use(images.to("cuda", non_blocking=True)), labels
