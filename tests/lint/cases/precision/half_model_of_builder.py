import torch
from nets import GPT


def build_half(device):
    model = GPT().to(device)
    model = model.half()  # expect: half-with-scaler
    return model


def build_float(device):
    network = GPT().to(device)
    network.half()
    network.float()
    return network


def wrong_training(device, batches):
    lm = build_half(device)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=3e-4)  # expect: fp16-adam-eps
    scaler = torch.amp.GradScaler("cuda")
    for ids in batches:
        optimizer.zero_grad()
        scaler.scale(lm(ids).loss).backward()
        scaler.step(optimizer)
        scaler.update()


def right_training(device, batches):
    lm = build_float(device)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=3e-4)
    scaler = torch.amp.GradScaler("cuda")
    for ids in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = lm(ids).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def build_both(rate):
    codec = GPT().half().to("cuda")  # expect: half-with-scaler
    adam = torch.optim.Adam(codec.parameters(), lr=rate)  # expect: fp16-adam-eps
    return codec, adam


def wrong_training_of_both(batches):
    codec, adam = build_both(1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for ids in batches:
        adam.zero_grad()
        scaler.scale(codec(ids).loss).backward()
        scaler.step(adam)
        scaler.update()
