import gc

import torch


def wrong_other_name(model, x):
    out = model(x)
    result = out
    del out  # expect: useless-del
    torch.cuda.empty_cache()
    return result


def wrong_loop_name():
    tensors = [torch.zeros(1000, 1000, device="cuda") for _ in range(10)]
    for tensor in tensors:
        del tensor  # expect: useless-del
    torch.cuda.empty_cache()
    return len(tensors)


def wrong_attribute(self, model, x):
    features = model(x)
    self.features = features
    del features  # expect: useless-del
    gc.collect()


def wrong_list(model, batches):
    kept = []
    with torch.no_grad():
        for batch in batches:
            out = model(batch)
            kept.append(out)
            del out  # expect: useless-del
            # The list is needed by the caller.
    return kept


def wrong_cleanup(model, optimizer):
    del model, optimizer  # expect: useless-del
    gc.collect()
    torch.cuda.empty_cache()


def right_last_name(model, x):
    out = model(x)
    score = out.mean().item()
    del out
    torch.cuda.empty_cache()
    return score


def right_both(model, x):
    out = model(x)
    alias = out
    del alias, out
    gc.collect()


def right_copy(model, batches):
    kept = []
    with torch.no_grad():
        for batch in batches:
            out = model(batch)
            kept.append(out.cpu())
            del out
    return kept


def right_in_the_step(model, loader, criterion, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        del out, loss


def right_unused_argument(value, unused):
    del unused
    return value


def right_list_itself():
    tensors = [torch.zeros(1000, device="cuda") for _ in range(10)]
    total = sum(tensor.sum().item() for tensor in tensors)
    del tensors
    torch.cuda.empty_cache()
    return total
