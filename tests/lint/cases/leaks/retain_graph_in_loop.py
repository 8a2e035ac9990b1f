import torch
import torch.nn.functional as F


def wrong_only_backward(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward(retain_graph=True)  # expect: retain-graph-in-loop
        optimizer.step()


def wrong_scaled(net, dl, opt, scaler, k):
    opt.zero_grad()
    for i, (x, y) in enumerate(dl, start=1):
        with torch.autocast("cuda"):
            loss = F.mse_loss(net(x), y) / k
        scaler.scale(loss).backward(retain_graph=True)  # expect: retain-graph-in-loop
        if i % k == 0 or i == len(dl):
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()


def wrong_hidden_state(rnn, chunks, optimizer):
    hidden = None
    for x, y in chunks:
        optimizer.zero_grad()
        out, hidden = rnn(x, hidden)
        loss = F.mse_loss(out, y)
        loss.backward(retain_graph=True)  # expect: retain-graph-in-loop
        optimizer.step()


def wrong_gan(G, D, loader, opt_d, opt_g, bce, nz):
    for real, _ in loader:
        fake = G(torch.randn(len(real), nz))
        opt_d.zero_grad()
        d_real, d_fake = D(real), D(fake.detach())
        loss_d = bce(d_real, torch.ones_like(d_real)) + bce(d_fake, torch.zeros_like(d_fake))
        loss_d.backward(retain_graph=True)  # expect: retain-graph-in-loop
        opt_d.step()
        opt_g.zero_grad()
        out = D(fake)
        loss_g = bce(out, torch.ones_like(out))
        loss_g.backward()
        opt_g.step()


def right_two_losses(encoder, decoder, head, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        features = encoder(x)
        reconstruction = F.mse_loss(decoder(features), x)
        classification = F.cross_entropy(head(features), y)
        reconstruction.backward(retain_graph=True)
        classification.backward()
        optimizer.step()


def right_gan_with_shared_graph(G, D, loader, opt_d, opt_g, nz):
    for real, _ in loader:
        fake = G(torch.randn(len(real), nz))
        opt_d.zero_grad()
        loss_d = D(fake).mean() - D(real).mean()
        loss_d.backward(retain_graph=True)
        opt_g.zero_grad()
        loss_g = -D(fake).mean()
        loss_g.backward()
        opt_d.step()
        opt_g.step()


def right_jacobian(model, x):
    out = model(x)
    rows = []
    for i in range(out.size(1)):
        x.grad = None
        out[:, i].sum().backward(retain_graph=True)
        rows.append(x.grad.clone())
    return rows


def right_list_of_losses(model, loader, optimizer, parts):
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        for part in parts:
            part(output, y).backward(retain_graph=True)
        optimizer.step()


def wrong_penalty(critic, loader, optimizer):
    for x, _ in loader:
        optimizer.zero_grad()
        x.requires_grad_(True)
        score = critic(x).sum()
        gradient, = torch.autograd.grad(score, x, create_graph=True)
        loss = score + gradient.norm()
        loss.backward(retain_graph=True)  # expect: retain-graph-in-loop
        optimizer.step()
