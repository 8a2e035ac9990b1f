from contextlib import ExitStack

import torch
from helpers import inference_context


def right_block(model, val_loader):
    hits = 0
    with inference_context(model), torch.no_grad():
        for image, label in val_loader:
            hits += (model(image).argmax(1) == label).sum().item()
    return hits


def right_stack(model, val_loader):
    hits = 0
    with ExitStack() as stack:
        stack.enter_context(inference_context(model))
        stack.enter_context(torch.no_grad())
        for image, label in val_loader:
            hits += (model(image).argmax(1) == label).sum().item()
    return hits


def wrong_stack(model, val_loader, path):
    hits = 0
    with ExitStack() as stack:
        log = stack.enter_context(open(path, "w"))
        for image, label in val_loader:  # expect: validation-with-grad, validation-without-eval
            hits += (model(image).argmax(1) == label).sum().item()
        print(hits, file=log)
    return hits


def wrong_inference_mode(model, val_loader):
    hits = 0
    with torch.inference_mode(True):
        for image, label in val_loader:  # expect: validation-without-eval
            hits += (model(image).argmax(1) == label).sum().item()
    return hits
