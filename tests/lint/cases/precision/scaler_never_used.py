import torch

scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = crit(net(x), y)
    loss.backward()  # expect: scaler-bypassed
    opt.step()
