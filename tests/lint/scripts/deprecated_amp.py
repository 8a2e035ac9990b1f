import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
teacher = nn.Linear(8, 3)
data = [(x, teacher(x).argmax(1)) for x in torch.randn(60, 4, 8)]
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss()
from torch.cpu.amp import autocast as cast, GradScaler

optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scaler = GradScaler(enabled=True)
other = torch.cpu.amp.GradScaler(2.0**8)


@cast(False)
def forward(x):
    return model(x)


for epoch in range(5):
    for x, y in data:
        optimizer.zero_grad()
        with cast(True, torch.bfloat16), torch.cpu.amp.autocast(enabled=False):
            loss = criterion(forward(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

with torch.no_grad():
    print(sum(criterion(model(x), y).item() for x, y in data) / len(data))
