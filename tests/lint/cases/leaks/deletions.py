import torch


def wrong_before_return(network, image):
    with torch.no_grad():
        hidden = network(image)
        means = hidden.mean((2, 3))
    del hidden  # expect: useless-del
    return means


def right_before_work(network, image):
    with torch.no_grad():
        hidden = network(image)
        means = hidden.mean((2, 3))
    del hidden
    return network.head(means)


def wrong_collected(describe, pictures):
    results = []
    for picture in pictures:
        result = describe(picture)
        results.append(result)
        del result  # expect: useless-del
    return results


def wrong_beside_optimizer(build, batches, train):
    network = build()
    optimizer = torch.optim.Adam(network.parameters())
    train(network, optimizer, batches)
    del network  # expect: useless-del
    torch.cuda.empty_cache()
    return build()


def right_with_optimizer(build, batches, train):
    network = build()
    optimizer = torch.optim.Adam(network.parameters())
    train(network, optimizer, batches)
    del network, optimizer
    torch.cuda.empty_cache()
    return build()


def right_without_optimizer(build, batches, train):
    network = build()
    optimizer = torch.optim.Adam(network.parameters())
    train(network, optimizer, batches)
    optimizer = None
    del network
    torch.cuda.empty_cache()
    return build()


def wrong_beside_prepared_optimizer(build, batches, train, accelerator):
    network = build()
    optimizer = torch.optim.Adam(network.parameters())
    network, optimizer = accelerator.prepare(network, optimizer)
    train(network, optimizer, batches)
    del network  # expect: useless-del
    torch.cuda.empty_cache()
    return build()
