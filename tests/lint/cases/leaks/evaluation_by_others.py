import functools

import numpy as np
import timm
import torch
from monai.inferers import sliding_window_inference


def wrong_windows(net, val_loader):
    net.eval()
    volumes = []
    for batch in val_loader:  # expect: validation-with-grad
        whole = sliding_window_inference(batch["image"].cuda(), (96, 96, 96), 2, net)
        volumes.append(whole)  # expect: outputs-keep-graph
    return volumes


def wrong_mode_of_windows(net, val_loader, measure):
    with torch.no_grad():
        for batch in val_loader:  # expect: validation-without-eval
            measure(sliding_window_inference(inputs=batch["image"], roi_size=96, sw_batch_size=2, predictor=net))


@torch.inference_mode()
def right_windows(net, val_loader, measure):
    net.eval()
    for batch in val_loader:
        measure(sliding_window_inference(batch["image"].cuda(), (96, 96, 96), 2, net))


def evaluation(function):
    @functools.wraps(function)
    @torch.inference_mode()
    def inner(model, *others):
        was_training = model.training
        model.eval()
        try:
            return function(model, *others)
        finally:
            model.train(was_training)

    return inner


@evaluation
def right_decorated(model, test_loader):
    hits = 0
    for x, y in test_loader:
        hits += (model(x).argmax(1) == y).sum()
    return hits


def wrong_collected_features(loader):
    extractor = timm.create_model("vit_small_patch16_224", num_classes=0).eval()
    features = []
    for images, _ in loader:  # expect: validation-with-grad
        row = extractor(images.cuda())
        features.append(row)  # expect: outputs-keep-graph
        del row  # expect: useless-del
    features = torch.cat(features)
    return features


def right_copied(model, loader, count, size):
    rows = np.zeros((count, 1024))
    model.eval()
    for step, batch in enumerate(loader):
        with torch.no_grad():
            row = model(batch).cpu()
        rows[step * size : (step + 1) * size] = row
        del row, batch
    return rows


def wrong_cache_with_retry(model, optimizer, train_iter):
    for batch in train_iter:
        try:
            loss = model(batch.source, batch.target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            print("skipped a batch")
        torch.cuda.empty_cache()  # expect: empty-cache-in-loop


def monte_carlo_mode(net):
    net.eval()
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.train()


def right_monte_carlo(net, test_loader):
    monte_carlo_mode(net)
    with torch.no_grad():
        return [torch.stack([net(x).softmax(1) for _ in range(30)]).mean(0) for x, _ in test_loader]


@torch.no_grad()
def right_validation_loss(model, val_loader):
    model.train()  # torchvision's detectors return losses in training mode only
    return sum(sum(model(images, targets).values()).item() for images, targets in val_loader)


def wrong_distances(net, pairs):
    net.eval()
    rows = []
    for first, second in torch.utils.data.DataLoader(pairs):  # expect: validation-with-grad
        distance = torch.nn.functional.pairwise_distance(net(first), net(second))
        rows.append(distance.cpu())  # expect: outputs-keep-graph
    return rows
