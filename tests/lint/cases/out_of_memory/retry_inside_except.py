import torch


def one_step(model, optimizer, criterion, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def wrong_same_call(model, optimizer, criterion, loader):
    for x, y in loader:
        try:
            one_step(model, optimizer, criterion, x, y)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            one_step(model, optimizer, criterion, x, y)  # expect: retry-inside-except


def wrong_forward(model, x):
    try:
        with torch.no_grad():
            return model(x)
    except RuntimeError as e:
        if "out of memory" in str(e):
            torch.cuda.empty_cache()
            with torch.no_grad():
                return torch.cat([model(part) for part in x.chunk(2)])  # expect: retry-inside-except
        raise


def wrong_recursion(model, criterion, x, y, chunks=1):
    try:
        for a, b in zip(x.chunk(chunks), y.chunk(chunks)):
            (criterion(model(a), b) / chunks).backward()
    except torch.OutOfMemoryError:
        model.zero_grad(set_to_none=True)
        wrong_recursion(model, criterion, x, y, chunks * 2)  # expect: retry-inside-except


def right_after_the_block(model, optimizer, criterion, loader):
    for x, y in loader:
        is_short = False
        try:
            one_step(model, optimizer, criterion, x, y)
        except torch.cuda.OutOfMemoryError:
            is_short = True
        if is_short:
            torch.cuda.empty_cache()
            one_step(model, optimizer, criterion, x, y)


def right_loop(model, criterion, x, y):
    chunks = 1
    while True:
        try:
            for a, b in zip(x.chunk(chunks), y.chunk(chunks)):
                (criterion(model(a), b) / chunks).backward()
            break
        except torch.cuda.OutOfMemoryError:
            chunks *= 2
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()


def right_skip(model, optimizer, criterion, loader):
    skipped = 0
    for x, y in loader:
        try:
            one_step(model, optimizer, criterion, x, y)
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad()
            skipped += 1
    return skipped
