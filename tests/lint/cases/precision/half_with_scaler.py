import torch
from torch import nn
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def statement(net, crit, loader):
    net.half()  # expect: half-with-scaler
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def chained(crit, loader, scaler):
    model = nn.Linear(8, 8).cuda().half()  # expect: half-with-scaler
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(crit(model(x), y)).backward()
        scaler.step(opt)
        scaler.update()


def moved(net, crit, loader, scaler, opt, device):
    dtype = torch.float16
    net = net.to(device, dtype)  # expect: half-with-scaler
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(crit(net(x), y)).backward()
        scaler.step(opt)
        scaler.update()


def pretrained(name, loader, scaler):
    lm = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16)  # expect: half-with-scaler
    opt = torch.optim.SGD([p for p in lm.parameters() if p.requires_grad], lr=0.1)
    for batch in loader:
        opt.zero_grad()
        scaler.scale(lm(**batch).loss).backward()
        scaler.step(opt)
        scaler.update()


def trainer(name, data):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype="float16")  # expect: half-with-scaler
    args = TrainingArguments("out", fp16=True)
    Trainer(model=model, args=args, train_dataset=data).train()


def build():
    return nn.Linear(8, 8).half()  # expect: half-with-scaler


def main(crit, loader, scaler):
    built = build()
    opt = torch.optim.SGD(built.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(crit(built(x), y)).backward()
        scaler.step(opt)
        scaler.update()


def fit(network, crit, loader, scaler):
    opt = torch.optim.SGD(network.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(crit(network(x), y)).backward()
        scaler.step(opt)
        scaler.update()


def start(crit, loader, scaler):
    small = nn.Linear(8, 8)
    small.half()  # expect: half-with-scaler
    fit(small, crit, loader, scaler)


class OwnTrainer(Trainer):
    pass


def own_trainer(name, data):
    own = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float16)  # expect: half-with-scaler
    OwnTrainer(own, TrainingArguments("out", fp16=True), train_dataset=data).train()


# Right.


def float32(net, crit, loader, scaler, opt):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    net.half()
    return net


def teacher_only(student, teacher, crit, loader, scaler):
    teacher.half()
    opt = torch.optim.SGD(student.parameters(), lr=0.1)
    for x, _ in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(student(x), teacher(x))
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def optional(net, crit, loader, scaler, opt, pure_half):
    if pure_half:
        net.half()
    for x, y in loader:
        opt.zero_grad()
        if pure_half:
            crit(net(x), y).backward()
            opt.step()
        else:
            scaler.scale(crit(net(x), y)).backward()
            scaler.step(opt)
            scaler.update()


def inputs_only(net, crit, loader, scaler, opt):
    for x, y in loader:
        opt.zero_grad()
        x = x.half()
        scaler.scale(crit(net(x), y)).backward()
        scaler.step(opt)
        scaler.update()


def inference(net, loader):
    net.half()
    net.eval()
    with torch.no_grad():
        return [net(x.half()).argmax(1).cpu() for x in loader]
