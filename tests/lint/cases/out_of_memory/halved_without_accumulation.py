import torch


def wrong_size(train, make_loader):
    bs = 64
    while bs >= 1:
        try:
            train(make_loader(bs))
            break
        except torch.cuda.OutOfMemoryError:
            bs //= 2  # expect: halved-without-accumulation


def wrong_config(cfg, fit):
    is_done = False
    while not is_done:
        try:
            fit(cfg)
            is_done = True
        except torch.OutOfMemoryError:
            cfg["batch_size"] = max(1, cfg["batch_size"] // 2)  # expect: halved-without-accumulation


def wrong_flag(epoch, make_loader, batch_size=128):
    loader = make_loader(batch_size)
    for _ in range(10):
        is_short = False
        try:
            epoch(loader)
        except torch.cuda.OutOfMemoryError:
            is_short = True
        if is_short:
            torch.cuda.empty_cache()
            batch_size = int(batch_size / 2)  # expect: halved-without-accumulation
            loader = make_loader(batch_size)


def wrong_half_of_the_batch(train_step, loader):
    for x, y in loader:
        half = None
        try:
            train_step(x, y)
        except torch.cuda.OutOfMemoryError:
            half = len(x) // 2  # expect: halved-without-accumulation
        if half:
            train_step(x[:half], y[:half])


def right_accumulation(train, make_loader):
    bs, accum_steps = 64, 1
    while bs >= 1:
        try:
            train(make_loader(bs), accum_steps)
            break
        except torch.cuda.OutOfMemoryError:
            bs //= 2
            accum_steps *= 2


def right_both_halves(train_step, loader):
    for x, y in loader:
        half = None
        try:
            train_step([(x, y)])
        except torch.cuda.OutOfMemoryError:
            half = len(x) // 2
        if half:
            train_step([(x[:half], y[:half]), (x[half:], y[half:])])


def find_batch_size(model, shape, bs=1024):
    while bs > 1:
        try:
            model(torch.randn(bs, *shape, device="cuda")).sum().backward()
            return bs
        except torch.cuda.OutOfMemoryError:
            bs //= 2
    return bs


def right_image_size(train, size=640):
    while size >= 64:
        try:
            train(image_size=size)
            break
        except torch.cuda.OutOfMemoryError:
            size = 32 * (size // 64)
