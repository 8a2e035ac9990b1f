import os

import torch
import torchvision
from nets import Restorer, Stylizer
from PIL import Image


def wrong_features(loader, bank_loader, contrast):
    encoder = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-4)
    encoder.train()
    for a, b in loader:
        optimizer.zero_grad()
        contrast(encoder(a), encoder(b)).backward()
        optimizer.step()
    features = []
    for x, _ in bank_loader:  # expect: validation-without-eval
        with torch.no_grad():
            features.append(encoder(x.cuda()))
    return torch.cat(features)


def wrong_named_features(loader, bank_loader, contrast):
    encoder = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-4)
    for a, b in loader:
        optimizer.zero_grad()
        contrast(encoder(a), encoder(b)).backward()
        optimizer.step()
    rows = []
    with torch.no_grad():
        for x, _ in bank_loader:  # expect: validation-without-eval
            feature = encoder(x.cuda()).flatten(1).cpu()
            rows.append(feature)
    return torch.cat(rows)


def wrong_stylize(args):
    net = Stylizer().cuda()
    net.load_state_dict(torch.load(args.weights))
    for name in os.listdir(args.inputs):  # expect: validation-with-grad, validation-without-eval
        out = net(torch.load(name).unsqueeze(0).cuda()).clamp(0, 1).cpu()[0]
        Image.fromarray(out.byte().tolist()).save(name)


def wrong_restore(paths, weights, load, save):
    net = Restorer()
    net.load_state_dict(torch.load(weights))
    net.cuda().eval()
    for path in paths:  # expect: validation-with-grad
        clean = net(load(path).cuda())
        save(path, clean[0].detach().cpu().numpy())


def right_features(loader, bank_loader, contrast):
    encoder = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-4)
    for a, b in loader:
        optimizer.zero_grad()
        contrast(encoder(a), encoder(b)).backward()
        optimizer.step()
    encoder.eval()
    features = []
    for x, _ in bank_loader:
        with torch.no_grad():
            features.append(encoder(x.cuda()))
    return torch.cat(features)


def right_monte_carlo(loader, bank_loader, contrast):
    encoder = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-4)
    for a, b in loader:
        optimizer.zero_grad()
        contrast(encoder(a), encoder(b)).backward()
        optimizer.step()
    encoder.train()  # dropout is wanted
    samples = []
    for x, _ in bank_loader:
        with torch.no_grad():
            samples.append(encoder(x.cuda()))
    return torch.stack(samples)


def right_statistics(loader, bank_loader, contrast):
    encoder = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-4)
    for a, b in loader:
        optimizer.zero_grad()
        contrast(encoder(a), encoder(b)).backward()
        optimizer.step()
    for x, _ in bank_loader:
        with torch.no_grad():
            encoder(x.cuda())  # new statistics of batch norm


def right_teacher(loader, bank_loader, contrast, teacher):
    encoder = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-4)
    for a, b in loader:
        optimizer.zero_grad()
        contrast(encoder(a), encoder(b)).backward()
        optimizer.step()
    targets = []
    for x, _ in bank_loader:
        with torch.no_grad():
            targets.append(teacher(x.cuda()))
    return torch.cat(targets)


def right_continued(args, loader, run):
    net = Stylizer().cuda()
    net.load_state_dict(torch.load(args.weights))
    optimizer = torch.optim.Adam(net.parameters())
    for x in loader:
        run(optimizer, net(x.cuda()).cpu())


def right_returned(args, inputs):
    net = Stylizer().cuda()
    net.load_state_dict(torch.load(args.weights))
    for x in inputs:
        print(net(x).cpu())
    return net


def right_attack(args, inputs, loss_of):
    net = Stylizer().cuda()
    net.load_state_dict(torch.load(args.weights))
    for x in inputs:
        x.requires_grad_()
        out = net(x)
        loss_of(out).backward()
        print(out.cpu())


@torch.inference_mode()
def right_stylize(args):
    net = Stylizer().cuda()
    net.load_state_dict(torch.load(args.weights))
    net.eval()
    for name in os.listdir(args.inputs):
        print(net(torch.load(name)).cpu())
