import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
teacher = nn.Linear(8, 3)
data = [(x, teacher(x).argmax(1)) for x in torch.randn(60, 4, 8)]
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
k = 8

for epoch in range(10):
    for i, (x, y) in enumerate(data):
        optimizer.zero_grad()  # start clean
        loss = criterion(model(x), y) / k
        loss.backward()
        if (i + 1) % k == 0 or i + 1 == len(data):
            optimizer.step()  # once per group

with torch.no_grad():
    print(sum(criterion(model(x), y).item() for x, y in data) / len(data))
