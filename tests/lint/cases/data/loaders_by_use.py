import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def wrong_order(network, values, answers, optimizer):
    batches = DataLoader(TensorDataset(values, answers), batch_size=64)  # expect: train-without-shuffle
    for value, answer in batches:
        optimizer.zero_grad()
        F.mse_loss(network(value), answer).backward()
        optimizer.step()


def right_order(network, values, answers, optimizer):
    batches = DataLoader(TensorDataset(values, answers), batch_size=64, shuffle=True)
    for value, answer in batches:
        optimizer.zero_grad()
        F.mse_loss(network(value), answer).backward()
        optimizer.step()


def move(parts, place):
    return [part.to(place) for part in parts]  # expect: pin-without-non-blocking


def wrong_copy_by_function(network, values, answers, optimizer):
    batches = DataLoader(TensorDataset(values, answers), batch_size=64, shuffle=True, pin_memory=True)
    for batch in batches:
        value, answer = move(batch, "cuda")
        optimizer.zero_grad()
        F.mse_loss(network(value), answer).backward()
        optimizer.step()


def wrong_new_workers(dataset, train_step):
    done = 0
    while done < 1000:
        batches = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)  # expect: loader-replaced
        for batch in batches:
            train_step(batch)
            done += 1


def wrong_copy_of_tuple(network, values, answers, optimizer, device):
    batches = DataLoader(TensorDataset(values, answers), batch_size=64, shuffle=True, pin_memory=True)
    for value, answer in batches:
        value, answer = [part.to(device) for part in (value, answer)]  # expect: pin-without-non-blocking
        optimizer.zero_grad()
        F.mse_loss(network(value), answer).backward()
        optimizer.step()


def wrong_iterator(pictures):
    train_iter = DataLoader(pictures, 64)  # expect: train-without-shuffle
    return train_iter
