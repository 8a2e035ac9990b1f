import torch
from torch.nn.utils import clip_grad_norm_


def wrong_second(critic, painter, loader, opt_c, opt_p, loss_c, loss_p):
    scaler_c, scaler_p = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
    for x in loader:
        opt_c.zero_grad()
        scaler_c.scale(loss_c(critic, x)).backward()
        scaler_c.unscale_(opt_c)
        clip_grad_norm_(critic.parameters(), 1.0)
        scaler_c.step(opt_c)
        scaler_c.update()
        opt_p.zero_grad()
        scaler_p.scale(loss_p(painter, x)).backward()
        clip_grad_norm_(painter.parameters(), 1.0)  # expect: clip-without-unscale
        scaler_p.step(opt_p)
        scaler_p.update()


def right_together(critic, painter, loader, opt_c, opt_p, loss_both):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        opt_c.zero_grad()
        opt_p.zero_grad()
        scaler.scale(loss_both(critic, painter, x)).backward()
        scaler.unscale_(opt_c)
        scaler.unscale_(opt_p)
        clip_grad_norm_(critic.parameters(), 1.0)
        scaler.step(opt_c)
        clip_grad_norm_(painter.parameters(), 1.0)
        scaler.step(opt_p)
        scaler.update()
