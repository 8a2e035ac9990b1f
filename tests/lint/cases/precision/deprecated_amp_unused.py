from torch.cuda.amp import GradScaler  # expect: deprecated-amp
