import gc

import torch


def wrong_train(model, loader, criterion, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()  # expect: empty-cache-in-loop


def wrong_with_collection(net, dl, crit, opt):
    for x, y in dl:
        opt.zero_grad()
        crit(net(x), y).backward()
        opt.step()
        gc.collect()
        torch.cuda.empty_cache()  # expect: empty-cache-in-loop


@torch.no_grad()
def wrong_validation(model, val_loader, metric):
    model.eval()
    for x, y in val_loader:
        metric.update(model(x).argmax(1), y)
        torch.cuda.empty_cache()  # expect: empty-cache-in-loop


def wrong_step_function(train_loader, train_step):
    for batch in train_loader:
        train_step(batch)
        torch.mps.empty_cache()  # expect: empty-cache-in-loop


def right_per_epoch(model, loader, criterion, optimizer, epochs):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        torch.cuda.empty_cache()


def right_after_error(model, loader, criterion, optimizer):
    for i, (x, y) in enumerate(loader):
        is_short = False
        optimizer.zero_grad()
        try:
            criterion(model(x), y).backward()
            optimizer.step()
        except torch.cuda.OutOfMemoryError:
            is_short = True
        if is_short:
            torch.cuda.empty_cache()


def right_comparison(names, build, x):
    peaks = {}
    for name in names:
        model = build(name)
        model(x).sum().backward()
        peaks[name] = torch.cuda.max_memory_allocated()
        del model
        torch.cuda.empty_cache()
    return peaks
