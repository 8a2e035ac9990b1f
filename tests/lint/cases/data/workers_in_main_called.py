from torch.utils.data import DataLoader

from mydata import Tiles


def run():
    loader = DataLoader(Tiles("train"), batch_size=8, shuffle=True, num_workers=4)  # expect: workers-without-main-guard
    for epoch in range(3):
        for images, labels in loader:
            print(epoch, images.mean(), labels)


run()
