from torch.utils.data import DataLoader, Subset


def replaced(dataset):
    loader = DataLoader(dataset, batch_size=32)  # expect: loader-replaced
    print(len(dataset))
    loader = DataLoader(dataset, batch_size=64, num_workers=2)
    return loader


def every_epoch(model, criterion, optimizer, dataset, epochs):
    for epoch in range(epochs):
        loader = DataLoader(dataset, batch_size=32, shuffle=True)  # expect: loader-replaced
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        print(epoch)


def in_the_header(model, criterion, optimizer, dataset):
    for _ in range(10):
        for x, y in DataLoader(dataset, batch_size=32, shuffle=True):  # expect: loader-replaced
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()


def every_step(model, criterion, optimizer, dataset):
    for step in range(1000):
        x, y = next(iter(DataLoader(dataset, batch_size=32, shuffle=True)))  # expect: loader-replaced
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


def handed_on(model, dataset, train_epoch):
    for epoch in range(3):
        batches = DataLoader(dataset, batch_size=8, shuffle=True)  # expect: loader-replaced
        train_epoch(model, batches, epoch)


# Right.


def used_before(dataset, show):
    loader = DataLoader(dataset, batch_size=4)
    show(next(iter(loader)))
    loader = DataLoader(dataset, batch_size=64)
    return loader


def wrapped(dataset, accelerator):
    loader = DataLoader(dataset, batch_size=4)
    loader = accelerator.prepare(loader)
    return loader


def branches(dataset, large):
    if large:
        loader = DataLoader(dataset, batch_size=256)
    else:
        loader = DataLoader(dataset, batch_size=16)
    return loader


def folds(make_model, make_optimizer, criterion, dataset, splits):
    for train_ids, _ in splits:
        model = make_model()
        optimizer = make_optimizer(model)
        loader = DataLoader(Subset(dataset, train_ids), batch_size=8, shuffle=True)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()


def growing(model, criterion, optimizer, dataset):
    for epoch in range(10):
        loader = DataLoader(dataset, batch_size=8 * (epoch + 1), shuffle=True)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()


def changing(model, criterion, optimizer, dataset):
    for epoch in range(10):
        dataset.set_epoch(epoch)
        loader = DataLoader(dataset, batch_size=8)
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
