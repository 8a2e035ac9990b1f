import torch

activations = {}


def keep(name):
    def hook(module, inputs, output):
        activations[name] = output.detach()

    return hook


def wrong_in_function(net, x):
    net.layer4.register_forward_hook(keep("layer4"))  # expect: hook-not-removed
    with torch.no_grad():
        net.eval()
        net(x)
    return activations["layer4"]


def wrong_in_loop(model, loader):
    model.eval()
    with torch.no_grad():
        for x, _ in loader:
            model.fc.register_forward_hook(keep("fc"))  # expect: hook-not-removed
            model(x)


def wrong_all_modules(model, batch):
    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))  # expect: hook-not-removed
    with torch.no_grad():
        model(batch)
    return dict(activations)


def wrong_lost_handle(model, loader, optimizer, criterion):
    for x, y in loader:
        handle = model.head.register_full_backward_hook(print)  # expect: hook-not-removed
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def attach(model):
    model.conv1.register_forward_hook(keep("conv1"))  # expect: hook-not-removed


def wrong_called_in_loop(model, loader, optimizer, criterion):
    for x, y in loader:
        attach(model)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


class Extractor:
    def __init__(self, model):
        self.model = model
        self.model.layer3.register_forward_hook(keep("layer3"))

    @torch.no_grad()
    def __call__(self, x):
        self.model(x)
        return activations["layer3"]


def right_removed(net, x):
    handle = net.layer4.register_forward_hook(keep("layer4"))
    try:
        with torch.no_grad():
            net(x)
    finally:
        handle.remove()
    return activations["layer4"]


def right_list(model, batch):
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(keep(name)))
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()


def right_once(build, loader):
    model = build()
    model.layer1.register_forward_hook(keep("layer1"))
    with torch.no_grad():
        for x, _ in loader:
            model(x)


def right_hook_of_a_tensor(model, loader, optimizer, criterion):
    for x, y in loader:
        optimizer.zero_grad()
        features = model(x)
        features.register_hook(lambda gradient: gradient.clamp(-1, 1))
        criterion(features, y).backward()
        optimizer.step()
