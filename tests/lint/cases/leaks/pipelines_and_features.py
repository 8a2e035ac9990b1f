import torch
from diffusers import DiffusionPipeline
from torch import nn


class RightPipeline(DiffusionPipeline):
    @torch.no_grad()
    def predict_depth(self, latents, timesteps):
        for step in timesteps:
            latents = self.scheduler.step(self.unet(latents, step).sample, step, latents).prev_sample
        return latents

    def predict_features(self, image):
        self.image_encoder.eval()
        return [self.image_encoder(part, output_hidden_states=True).hidden_states[-2] for part in image]


class RightDiscriminator(nn.Module):
    def forward(self, image, step):
        features = []

        def keep(module, inputs, output):
            features.append(output)

        hooks = [block.register_forward_hook(keep) for block in self.backbone.blocks]
        self.backbone(image, step)
        for hook in hooks:
            hook.remove()
        return torch.cat([head(feature) for head, feature in zip(self.heads, features)], 1)


def wrong_features_of_all_batches(model, loader, optimizer):
    features = []

    def keep(module, inputs, output):
        features.append(output)  # expect: outputs-keep-graph

    handle = model.backbone.register_forward_hook(keep)
    for image, label in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(image), label).backward()
        optimizer.step()
    handle.remove()
    return features
