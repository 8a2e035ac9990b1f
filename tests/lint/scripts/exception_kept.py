"""Trains with batches of which some run out of memory; prints the errors, and how many tensors they keep."""

import gc

import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        hidden = x * torch.full((321, 8), 2.0)
        if x[0, 0] > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return self.layer(hidden)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
errors = []
for step, x in enumerate(torch.randn(20, 321, 8)):
    optimizer.zero_grad()
    try:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    except torch.cuda.OutOfMemoryError as error:
        errors.append((step, error))

del x, loss
gc.collect()
print(sum(isinstance(item, torch.Tensor) and item.shape == (321, 8) for item in gc.get_objects()) > 0)
print([(step, str(error)) for step, error in errors])
print(f"{model.layer.weight.sum().item():.6f}")
