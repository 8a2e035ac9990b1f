import os

os.environ["PYTORCH_CUDA_ALLOC_CONFIG"] = "max_split_size_mb:128"
import torch

setting = os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
if setting is None:
    raise SystemExit("torch gets no setting")
torch._C._accelerator_setAllocatorSettings(setting)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 8)
for _ in range(50):
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 2))
