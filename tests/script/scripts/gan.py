"""A GAN: two models, two optimizers, noise that is created on the GPU."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LATENT = 64


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(LATENT, 128, 4, 1, 0, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(True),
            nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(True),
            nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, 64, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(64, 128, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(128, 1, 4, 1, 0),
            nn.Sigmoid(),
        )

    def forward(self, images):
        return self.main(images).view(-1)


def main():
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    generator, discriminator = Generator().to(device), Discriminator().to(device)
    criterion = nn.BCELoss()
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loader = DataLoader(TensorDataset(torch.rand(64, 3, 16, 16)), batch_size=16, shuffle=True)
    for (images,) in loader:
        discriminator.zero_grad()
        real = images.to(device)
        count = real.size(0)
        label = torch.full((count,), 1.0, device=device)
        loss_real = criterion(discriminator(real), label)
        loss_real.backward()
        fake = generator(torch.randn(count, LATENT, 1, 1, device=device))
        label.fill_(0.0)
        loss_fake = criterion(discriminator(fake.detach()), label)
        loss_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        label.fill_(1.0)
        loss_g = criterion(discriminator(fake), label)
        loss_g.backward()
        optimizer_g.step()
        print((loss_real + loss_fake).item(), loss_g.item())


if __name__ == "__main__":
    main()
