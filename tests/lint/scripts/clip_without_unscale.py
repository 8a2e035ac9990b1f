import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
teacher = nn.Linear(8, 3)
data = [(x, teacher(x).argmax(1)) for x in torch.randn(60, 4, 8)]
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scaler = torch.amp.GradScaler("cpu")

for epoch in range(5):
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        norm = nn.utils.clip_grad_norm_(
            model.parameters(), 1.0
        )
        scaler.step(optimizer)
        scaler.update()

with torch.no_grad():
    print(sum(criterion(model(x), y).item() for x, y in data) / len(data))
