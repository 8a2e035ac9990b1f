import torch
from nets import Net


def right_after_training(crit, loader):
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for x, y in loader:
        optimizer.zero_grad()
        crit(net(x), y).backward()
        optimizer.step()
    torch.save({"optimizer": optimizer.state_dict()}, "last.pt")
    net.half().eval()
    return net


def right_after_training_by_a_function(crit, loader, fit):
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    fit(net, optimizer, crit, loader)
    net = net.to(torch.float16)
    torch.onnx.export(net, loader[0].half(), "net.onnx")


def wrong_before_training(crit, loader):
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)  # expect: fp16-adam-eps
    net.half()
    for x, y in loader:
        optimizer.zero_grad()
        crit(net(x), y).backward()
        optimizer.step()


def wrong_before_a_function(crit, loader, fit):
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)  # expect: fp16-adam-eps
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    net = net.half()
    fit(net, optimizer, scheduler, crit, loader)


def wrong_before_its_return():
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)  # expect: fp16-adam-eps
    net.half()
    return net, optimizer


def right_with_another_model(crit, loader, measure, scaler):
    net = Net().half().cuda()
    measure(net)
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def wrong_with_the_same_model(crit, loader, scaler):
    net = Net().half()  # expect: half-with-scaler
    net = torch.compile(net.cuda())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)  # expect: fp16-adam-eps
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(crit(net(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()


def fit_scaled(model, crit, loader, scaler):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = crit(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()


def right_passed_on(crit, loader, scaler, measure):
    net = Net().half()
    measure(net)
    net = Net()
    fit_scaled(net, crit, loader, scaler)
    net.half()


class RightExport:
    def __init__(self):
        self.net = Net().cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def train(self, crit, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            crit(self.net(x), y).backward()
            self.optimizer.step()

    def export(self):
        self.net.half()
        torch.save(self.net, "half.pt")


class WrongFromTheStart:
    def build(self):
        self.net = Net().cuda().half()

    def train(self, crit, loader):
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)  # expect: fp16-adam-eps
        for x, y in loader:
            self.optimizer.zero_grad()
            crit(self.net(x), y).backward()
            self.optimizer.step()
