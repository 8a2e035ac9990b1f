import accelerate
import deepspeed
import torch.nn.functional as F

PARTS = 6


def wrong_other_name(net, optimizer, loader):
    helper = accelerate.Accelerator(gradient_accumulation_steps=PARTS)
    net, optimizer, loader = helper.prepare(net, optimizer, loader)
    for image, label in loader:
        with helper.accumulate(net):
            loss = F.cross_entropy(net(image), label)
            helper.backward(loss / PARTS)  # expect: loss-divided-twice
            optimizer.step()
            optimizer.zero_grad()


def wrong_engine(net, loader):
    settings = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 6}
    engine, _, _, _ = deepspeed.initialize(model=net, config=settings)
    for image, label in loader:
        loss = F.cross_entropy(engine(image), label)
        engine.backward(loss / 6)  # expect: loss-divided-twice
        engine.step()


def right_engine(net, loader):
    settings = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 6}
    engine, _, _, _ = deepspeed.initialize(model=net, config=settings)
    for image, label in loader:
        engine.backward(F.cross_entropy(engine(image), label))
        engine.step()


def wrong_same_number(net, optimizer, loader):
    for index, (image, label) in enumerate(loader):
        loss = F.cross_entropy(net(image), label) / 6
        (loss / 6).backward()  # expect: loss-divided-twice
        if (index + 1) % 6 == 0 or index + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
