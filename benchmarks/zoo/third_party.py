"""Configurations of transformers, timm and torchvision in families that the rest of the zoo lacks.

All are built from configurations with random weights, small enough that a GPU runs several at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from oomph.job import Job
from oomph.settings import PRECISIONS, Settings

from . import third_party_batches as data
from .configs import Config, adamw, fused, sgd
from .third_party_batches import adafactor, box_loss, class_loss, flow_loss, model_loss, rmsprop, tokens
from .torchvision_shim import declare_operators

Build = Callable[[], nn.Module]
Batch = Callable[[int, Any], Any]
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]
Step = Callable[[nn.Module, Any], Tensor]
# name, class or model, its options, batch, optimizer, settings such as "8x512 amp-bf16 channels_last"
Row = tuple[str, str, dict[str, Any], Batch, Optimizer, str]

EAGER = {"attn_implementation": "eager"}
TINY_TEXT = {"vocab_size": 20000, "num_hidden_layers": 4}
# Grouped queries, wide enough for heads of 64.
GROUPED = {**TINY_TEXT, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16}
GROUPED |= {"num_key_value_heads": 4}
EXPERTS = {**GROUPED, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 1024}


def _transformers(model: str, options: dict[str, Any]) -> Build:
    """Return a builder of a model of transformers; the option `recompute` turns gradient checkpointing on."""

    def build() -> nn.Module:
        declare_operators()
        import transformers

        config = {name: value for name, value in options.items() if name != "recompute"}
        if "Detr" in model:
            config["backbone_config"] = transformers.ResNetConfig(out_features=["stage4"])
        architecture = getattr(transformers, model)
        module: nn.Module = architecture(architecture.config_class(**config))
        if "recompute" in options:
            module.gradient_checkpointing_enable()  # type: ignore[operator]
        return module

    return build


def _timm(model: str, options: dict[str, Any]) -> Build:
    def build() -> nn.Module:
        declare_operators()
        import timm

        module: nn.Module = timm.create_model(model, **options)
        return module

    return build


def _torchvision(model: str, options: dict[str, Any]) -> Build:
    """Return a builder of a model of torchvision, named with its subpackage if it has one."""

    def build() -> nn.Module:
        declare_operators()
        from torchvision import models

        package, _, name = model.rpartition(".")
        module: nn.Module = getattr(getattr(models, package) if package else models, name)(weights=None, **options)
        return module

    return build


def _encoders() -> list[Row]:
    text = TINY_TEXT
    # fmt: off
    return [
        ("distilbert-fp16", "DistilBertForMaskedLM", {"vocab_size": 20000, "n_layers": 6}, tokens, adamw,
         "16x256 amp-fp16"),
        ("roberta-eager", "RobertaForMaskedLM", {**text, **EAGER}, tokens, adamw, "16x256 amp-bf16"),
        ("roberta-padded", "RobertaForMaskedLM", text, data.padded_tokens, adamw, "16x256 amp-bf16"),
        ("xlm-roberta-fp32", "XLMRobertaForSequenceClassification", text, data.documents, adamw, "16x256"),
        ("albert-fp16", "AlbertForMaskedLM", {"vocab_size": 20000, "hidden_size": 768, "num_attention_heads": 12,
         "intermediate_size": 3072, "num_hidden_layers": 6}, tokens, adamw, "16x256 amp-fp16"),
        ("electra-fp32", "ElectraForPreTraining", text, data.binary_tokens, adamw, "32x256"),
        ("deberta-v2-bf16", "DebertaV2ForSequenceClassification", {**text, "hidden_size": 768,
         "intermediate_size": 3072, "num_attention_heads": 12, "relative_attention": True, "pos_att_type": ["p2c",
         "c2p"]}, data.documents, adamw, "16x256 amp-bf16"),
        ("longformer-fp32", "LongformerForMaskedLM", {**text, "attention_window": 128,
         "max_position_embeddings": 1026}, tokens, adamw, "4x1024"),
        ("big-bird-bf16", "BigBirdForMaskedLM", text, tokens, adamw, "4x1024 amp-bf16"),
        ("mobilebert-fp32", "MobileBertForMaskedLM", {"vocab_size": 20000, "num_hidden_layers": 12}, tokens, sgd,
         "16x128"),
        ("squeezebert-fp16", "SqueezeBertForMaskedLM", text, tokens, adamw, "16x256 amp-fp16"),
        ("mpnet-bf16", "MPNetForMaskedLM", text, tokens, rmsprop, "16x256 amp-bf16"),
        ("modernbert-bf16", "ModernBertForMaskedLM", {**text, "pad_token_id": 0, "cls_token_id": 1,
         "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}, tokens, fused, "8x512 amp-bf16"),
        ("fnet-fp32", "FNetForMaskedLM", text, tokens, adamw, "16x256"),
        ("roformer-fp16", "RoFormerForMaskedLM", text, tokens, adamw, "16x256 amp-fp16"),
        ("nystromformer-fp32", "NystromformerForMaskedLM", {**text, "segment_means_seq_len": 512,
         "max_position_embeddings": 512}, tokens, adamw, "8x512"),
        ("funnel-fp32", "FunnelForSequenceClassification", {"vocab_size": 20000, "block_sizes": [2, 2, 2]},
         data.documents, adamw, "8x256"),
        ("xlnet-fp16", "XLNetForSequenceClassification", {"vocab_size": 20000, "n_layer": 4, "d_model": 768,
         "n_head": 12, "d_inner": 3072}, data.documents, adamw, "8x256 amp-fp16"),
        ("layoutlm-bf16", "LayoutLMForTokenClassification", text, data.layouts, adamw, "16x256 amp-bf16"),
        ("esm-bf16", "EsmForMaskedLM", {**text, "pad_token_id": 1, "mask_token_id": 4}, tokens, adamw,
         "8x256 amp-bf16"),
        ("data2vec-text-fp32", "Data2VecTextForMaskedLM", text, tokens, adamw, "8x256"),
        ("distilbert-masked", "DistilBertForSequenceClassification", {"n_layers": 6}, data.masked_documents, adamw,
         "16x256 amp-fp16"),
        ("bert-classifier", "BertForSequenceClassification", {"num_hidden_layers": 4}, data.masked_documents, adamw,
         "32x128"),
        ("bert-padded", "BertForMaskedLM", text, data.padded_tokens, fused, "16x256 amp-fp16"),
        ("convbert-fp16", "ConvBertForMaskedLM", text, tokens, adamw, "16x256 amp-fp16"),
    ]
    # fmt: on


def _decoders() -> list[Row]:
    text, wide = TINY_TEXT, GROUPED
    heads = {"hidden_size": 768, "num_attention_heads": 12}
    # fmt: off
    return [
        ("gpt-neox-bf16", "GPTNeoXForCausalLM", {**text, **heads, "intermediate_size": 3072}, tokens, adamw,
         "8x512 amp-bf16"),
        ("opt-fp16", "OPTForCausalLM", {**text, "word_embed_proj_dim": 768}, tokens, adamw, "8x512 amp-fp16"),
        ("bloom-fp32", "BloomForCausalLM", {"vocab_size": 20000, "hidden_size": 768, "n_layer": 4, "n_head": 12},
         tokens, adamw, "4x512"),
        ("falcon-bf16", "FalconForCausalLM", {**text, **heads}, tokens, adamw, "8x512 bf16"),
        ("mistral-fp32", "MistralForCausalLM", wide, tokens, adamw, "4x512"),
        ("mistral-window", "MistralForCausalLM", {**wide, "sliding_window": 128}, tokens, fused, "4x512 amp-bf16"),
        ("gemma2-bf16", "Gemma2ForCausalLM", {**wide, "head_dim": 64}, tokens, fused, "4x512 bf16"),
        ("gemma3-amp", "Gemma3ForCausalLM", {**wide, "head_dim": 64}, tokens, adamw, "4x512 amp-bf16"),
        ("qwen2-fp16", "Qwen2ForCausalLM", wide, tokens, adamw, "4x512 amp-fp16"),
        ("qwen2-padded", "Qwen2ForCausalLM", wide, data.padded_tokens, adamw, "4x512 bf16"),
        ("qwen3-recompute", "Qwen3ForCausalLM", {**wide, "head_dim": 64, "recompute": True}, tokens, adafactor,
         "8x512 bf16"),
        ("qwen2-moe-bf16", "Qwen2MoeForCausalLM", {**EXPERTS, "num_experts": 8, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 1024}, tokens, adamw, "4x256 bf16"),
        ("mixtral-bf16", "MixtralForCausalLM", {**EXPERTS, "num_local_experts": 4}, tokens, adamw, "4x256 amp-bf16"),
        ("phi-fp32", "PhiForCausalLM", {**text, **heads, "intermediate_size": 3072}, tokens, sgd, "4x512"),
        ("phi3-eager", "Phi3ForCausalLM", {**wide, **EAGER, "pad_token_id": 0}, tokens, adamw, "4x512 bf16"),
        ("mamba-fp32", "MambaForCausalLM", {"vocab_size": 20000, "hidden_size": 512, "num_hidden_layers": 3},
         tokens, adamw, "2x64"),
        ("rwkv-fp32", "RwkvForCausalLM", {"vocab_size": 20000, "hidden_size": 512, "num_hidden_layers": 2}, tokens,
         adamw, "4x48"),
        ("gpt-neo-bf16", "GPTNeoForCausalLM", {"vocab_size": 20000, "hidden_size": 768, "num_layers": 4,
         "num_heads": 12, "attention_types": [[["global", "local"], 2]]}, tokens, adamw, "8x512 amp-bf16"),
        ("gptj-fp16", "GPTJForCausalLM", {"vocab_size": 20000, "n_embd": 768, "n_layer": 4, "n_head": 12,
         "rotary_dim": 32}, tokens, adamw, "4x512 amp-fp16"),
        ("olmo2-fp32", "Olmo2ForCausalLM", {**wide, "num_key_value_heads": 16}, tokens, rmsprop, "4x512"),
        ("stablelm-blocks", "StableLmForCausalLM", wide, tokens, adamw, "8x512 amp-bf16 blocks"),
        ("gpt-bigcode-bf16", "GPTBigCodeForCausalLM", {"vocab_size": 20000, "n_embd": 768, "n_layer": 4,
         "n_head": 12}, tokens, adamw, "4x512 bf16"),
        ("starcoder2-fp32", "Starcoder2ForCausalLM", wide, tokens, adamw, "4x512"),
        ("llama-padded-fp32", "LlamaForCausalLM", wide, data.padded_tokens, adamw, "4x512"),
        ("llama-eager", "LlamaForCausalLM", {**wide, **EAGER}, tokens, adafactor, "4x512 amp-bf16"),
        ("gpt-oss-bf16", "GptOssForCausalLM", {**EXPERTS, "head_dim": 64, "num_local_experts": 4}, tokens, adamw,
         "4x256 bf16"),
        ("olmoe-bf16", "OlmoeForCausalLM", {**EXPERTS, "num_experts": 8, "num_experts_per_tok": 2}, tokens, adamw,
         "4x256 bf16"),
        ("mpt-fp16", "MptForCausalLM", {"vocab_size": 20000, "d_model": 768, "n_heads": 12, "n_layers": 4}, tokens,
         adamw, "4x512 amp-fp16"),
        ("codegen-fp32", "CodeGenForCausalLM", {"vocab_size": 20000, "n_embd": 768, "n_layer": 4, "n_head": 12,
         "rotary_dim": 32}, tokens, adamw, "4x512"),
        ("glm-amp", "GlmForCausalLM", {**wide, "head_dim": 64, "pad_token_id": 0}, tokens, adamw, "4x512 amp-bf16"),
        ("gemma-wide-heads", "GemmaForCausalLM", {**wide, "head_dim": 256}, tokens, adamw, "2x512 amp-bf16"),
        ("cohere-bf16", "CohereForCausalLM", wide, tokens, fused, "4x512 bf16"),
    ]
    # fmt: on


def _sequence_pairs() -> list[Row]:
    pairs, six = data.sentence_pairs, {"vocab_size": 20000, "encoder_layers": 3, "decoder_layers": 3}
    base = {**six, "d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    # fmt: off
    return [
        ("bart-bf16", "BartForConditionalGeneration", {**base, **heads}, pairs, adamw, "8x512 amp-bf16"),
        ("mbart-fp16", "MBartForConditionalGeneration", {**base, **heads}, pairs, adamw, "8x512 amp-fp16"),
        ("pegasus-fp32", "PegasusForConditionalGeneration", {**base, **heads}, pairs, adafactor, "8x512"),
        ("marian-recompute", "MarianMTModel", {**base, **heads, "pad_token_id": 0, "decoder_start_token_id": 0,
         "recompute": True}, pairs, adamw, "16x512 amp-bf16"),
        ("t5-bf16", "T5ForConditionalGeneration", {"vocab_size": 20000, "num_layers": 4,
         "decoder_start_token_id": 0}, pairs, adafactor, "8x512 bf16"),
        ("t5-fp32", "T5ForConditionalGeneration", {"vocab_size": 20000, "num_layers": 3,
         "decoder_start_token_id": 0}, pairs, adamw, "8x256"),
        ("led-fp32", "LEDForConditionalGeneration", {**base, **heads, "attention_window": 128}, pairs, adamw,
         "2x1024"),
        ("whisper-fp32", "WhisperForConditionalGeneration", {**six, "d_model": 384, "encoder_attention_heads": 6,
         "decoder_attention_heads": 6, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "decoder_start_token_id": 1}, data.spectrograms, adamw, "4x3000"),
        ("whisper-fp16", "WhisperForConditionalGeneration", {**six, "d_model": 512, "encoder_attention_heads": 8,
         "decoder_attention_heads": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "decoder_start_token_id": 1}, data.spectrograms, adamw, "8x3000 amp-fp16"),
        ("time-series-fp32", "TimeSeriesTransformerForPrediction", {"prediction_length": 24, "context_length": 96,
         "num_time_features": 2, "d_model": 256, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024,
         "encoder_layers": 4, "decoder_layers": 4}, data.series, adamw, "1024x103"),
        ("patchtst-fp32", "PatchTSTForPrediction", {"num_input_channels": 7, "context_length": 512,
         "prediction_length": 24, "num_hidden_layers": 4, "d_model": 256, "patch_length": 16, "patch_stride": 8},
         data.channels, adamw, "64x512"),
    ]
    # fmt: on


def _vision_and_audio() -> list[Row]:
    four = {"num_hidden_layers": 4, "num_labels": 1000}
    narrow = {"vocab_size": 20000, "num_hidden_layers": 4}
    towers = {"text_config": narrow, "vision_config": {"num_hidden_layers": 4}}
    speech = {"num_hidden_layers": 4}
    # fmt: off
    return [
        ("hf-deit-fp32", "DeiTForImageClassification", four, data.pictures, adamw, "32x224"),
        ("hf-swin-bf16", "SwinForImageClassification", {"num_labels": 1000}, data.pictures, adamw,
         "32x224 amp-bf16"),
        ("hf-beit-fp16", "BeitForImageClassification", four, data.pictures, adamw, "32x224 amp-fp16"),
        ("dinov2-bf16", "Dinov2ForImageClassification", {**four, "image_size": 224, "patch_size": 14},
         data.pictures, fused, "32x224 bf16"),
        ("detr-fp32", "DetrForObjectDetection", {"encoder_layers": 3, "decoder_layers": 3,
         "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}, data.unlabeled_pictures,
         adamw, "4x512"),
        ("yolos-bf16", "YolosForObjectDetection", {"num_hidden_layers": 4, "hidden_size": 384,
         "num_attention_heads": 6, "intermediate_size": 1536, "image_size": [512, 512]}, data.unlabeled_pictures,
         adamw, "8x512 amp-bf16"),
        ("clip-bf16", "CLIPModel", towers, data.captions, adamw, "32x224 amp-bf16"),
        ("siglip-fp32", "SiglipModel", towers, data.captions, adamw, "16x224"),
        ("vit-mae-fp16", "ViTMAEForPreTraining", {"num_hidden_layers": 4, "decoder_num_hidden_layers": 2},
         data.unlabeled_pictures, adamw, "32x224 amp-fp16"),
        ("dpt-fp16", "DPTForSemanticSegmentation", {"num_hidden_layers": 12, "image_size": 384, "num_labels": 4},
         data.label_maps, adamw, "4x384 amp-fp16"),
        ("perceiver-fp32", "PerceiverForImageClassificationConvProcessing", {"num_self_attends_per_block": 4,
         "num_blocks": 2, "num_latents": 256, "d_latents": 512, "num_cross_attention_heads": 1, "num_labels": 1000},
         data.small_pictures, adamw, "8x224"),
        ("videomae-bf16", "VideoMAEForVideoClassification", {"num_hidden_layers": 4, "num_frames": 8,
         "num_labels": 400}, data.frames, adamw, "8x224 amp-bf16"),
        ("timesformer-fp16", "TimesformerForVideoClassification", {"num_hidden_layers": 4, "num_labels": 400},
         data.frames, adamw, "4x224 amp-fp16"),
        ("convnext-hf-fp32", "ConvNextV2ForImageClassification", {"num_labels": 1000}, data.pictures, adamw,
         "16x224 channels_last"),
        ("hf-cvt-bf16", "CvtForImageClassification", {"num_labels": 1000}, data.pictures, adamw, "16x224 amp-bf16"),
        ("hf-efficientnet-fp32", "EfficientNetForImageClassification", {"width_coefficient": 1.0,
         "depth_coefficient": 1.0, "hidden_dim": 1280, "num_labels": 1000}, data.pictures, rmsprop, "16x224"),
        ("hf-resnet-fp16", "ResNetForImageClassification", {"num_labels": 1000}, data.pictures, sgd,
         "32x224 amp-fp16"),
        ("hf-mobilevit-fp32", "MobileViTForImageClassification", {"num_labels": 1000}, data.pictures, adamw, "16x256"),
        ("hf-swiftformer-fp16", "SwiftFormerForImageClassification", {"num_labels": 1000}, data.pictures, adamw,
         "16x224 amp-fp16"),
        ("hf-dinov2-eager", "Dinov2ForImageClassification", {**four, **EAGER, "image_size": 224}, data.pictures, adamw,
         "16x224"),
        ("wav2vec2-fp32", "Wav2Vec2ForCTC", speech, data.waveforms, adamw, "8x48000"),
        ("hubert-fp16", "HubertForSequenceClassification", {**speech, "apply_spec_augment": False},
         data.classified_waveforms, adamw, "8x48000 amp-fp16"),
        ("wavlm-bf16", "WavLMForSequenceClassification", {**speech, "apply_spec_augment": False},
         data.classified_waveforms, adamw, "8x48000 amp-bf16"),
        ("ast-bf16", "ASTForAudioClassification", {"num_hidden_layers": 4, "max_length": 512}, data.audio_patches,
         adamw, "16x512 amp-bf16"),
    ]
    # fmt: on


def _timm_rows() -> list[Row]:
    # fmt: off
    names: list[tuple[str, Optimizer, str]] = [
        ("coatnet_nano_rw_224", adamw, "32x224 amp-fp16"),
        ("maxvit_tiny_rw_224", adamw, "16x224 amp-bf16 channels_last"),
        ("mobilevit_s", adamw, "32x224"),
        ("edgenext_small", adamw, "32x224 amp-fp16"),
        ("fastvit_t8", adamw, "32x224 amp-bf16 channels_last"),
        ("levit_128", adamw, "64x224"),
        ("pvt_v2_b1", adamw, "32x224 amp-fp16"),
        ("twins_pcpvt_small", adamw, "32x224 amp-bf16"),
        ("cait_xxs24_224", adamw, "32x224 amp-fp16"),
        ("volo_d1_224", adamw, "16x224"),
        ("xcit_tiny_12_p16_224", adamw, "32x224 amp-bf16"),
        ("poolformer_s12", adamw, "32x224 amp-fp16"),
        ("eca_nfnet_l0", sgd, "32x224 amp-bf16"),
        ("ghostnet_100", sgd, "64x224"),
        ("hrnet_w18_small", sgd, "32x224 amp-fp16 channels_last"),
        ("res2net50_26w_4s", sgd, "32x224"),
        ("repvgg_a2", sgd, "32x224 amp-bf16"),
        ("ese_vovnet19b_dw", sgd, "32x224 amp-fp16"),
        ("dla34", rmsprop, "32x224"),
        ("tnt_s_patch16_224", adamw, "16x224 amp-fp16"),
        ("crossvit_9_240", adamw, "32x240 amp-bf16"),
        ("gmlp_s16_224", adamw, "32x224 amp-bf16"),
        ("resmlp_12_224", adamw, "32x224"),
        ("xception41", rmsprop, "16x299 amp-fp16"),
        ("cspdarknet53", sgd, "16x256 amp-bf16 channels_last"),
        ("seresnext50_32x4d", sgd, "32x224 amp-fp16"),
        ("skresnet18", sgd, "32x224"),
        ("resnest26d", sgd, "32x224 amp-bf16"),
        ("rexnet_100", adamw, "64x224 amp-fp16 channels_last"),
        ("mobilenetv4_conv_medium", adamw, "64x224 amp-bf16"),
        ("efficientformer_l1", adamw, "32x224 amp-fp16"),
        ("efficientvit_b1", adamw, "32x224"),
        ("mobileone_s1", sgd, "32x224 amp-bf16"),
        ("davit_tiny", adamw, "16x224 bf16"),
        ("focalnet_tiny_srf", adamw, "16x224 amp-fp16"),
        ("hiera_tiny_224", adamw, "16x224 amp-bf16"),
        ("eva02_tiny_patch14_336", adamw, "16x336"),
        ("swinv2_tiny_window8_256", adamw, "16x256 amp-bf16"),
        ("inception_next_tiny", adamw, "16x224 amp-fp16 channels_last"),
        ("convmixer_768_32", adamw, "8x224 amp-bf16"),
        ("botnet26t_256", adamw, "16x256 amp-bf16"),
        ("halonet26t", adamw, "16x256"),
        ("lambda_resnet26t", sgd, "16x256 amp-fp16"),
        ("gernet_s", sgd, "32x224"),
        ("nf_resnet50", sgd, "32x224 amp-fp16 channels_last"),
        ("cs3darknet_m", sgd, "32x256 amp-fp16"),
        ("selecsls42b", rmsprop, "32x224"),
        ("mixnet_s", rmsprop, "32x224"),
        ("fbnetc_100", sgd, "64x224 amp-bf16 channels_last"),
        ("lcnet_100", sgd, "128x224"),
        ("mobilevitv2_100", adamw, "32x256 amp-fp16"),
        ("convit_tiny", adamw, "32x224"),
        ("coat_tiny", adamw, "16x224 amp-bf16"),
        ("pit_s_224", adamw, "32x224 bf16"),
        ("nest_tiny", adamw, "16x224 amp-fp16"),
        ("sequencer2d_s", adamw, "8x224 amp-fp16"),
        ("visformer_tiny", adamw, "32x224"),
        ("gcvit_xxtiny", adamw, "16x224 amp-bf16"),
        ("mvitv2_tiny", adamw, "16x224"),
        ("efficientformerv2_s0", adamw, "32x224 amp-bf16"),
        ("tiny_vit_5m_224", adamw, "32x224 amp-fp16 channels_last"),
        ("vit_relpos_small_patch16_224", adamw, "32x224 amp-bf16"),
        ("caformer_s18", adamw, "16x224 amp-fp16"),
        ("hgnet_tiny", sgd, "32x224 amp-bf16 channels_last"),
        ("dpn68", sgd, "32x224"),
        ("inception_v4", rmsprop, "8x299 amp-fp16"),
        ("rdnet_tiny", adamw, "16x224 amp-bf16"),
    ]
    # fmt: on
    return [(f"timm-{name}", name, {}, data.images, optimizer, settings) for name, optimizer, settings in names]


def _torchvision_rows() -> list[Row]:
    images, clips = data.images, data.clips
    aux = {"init_weights": False}
    # fmt: off
    return [
        ("squeezenet-fp32", "squeezenet1_1", {}, images, sgd, "64x224"),
        ("squeezenet-fp16", "squeezenet1_0", {}, images, sgd, "64x224 amp-fp16"),
        ("shufflenet-fp32", "shufflenet_v2_x1_0", {}, images, sgd, "64x224"),
        ("googlenet-bf16", "googlenet", aux, images, sgd, "32x224 amp-bf16"),
        ("inception-v3-fp32", "inception_v3", aux, images, rmsprop, "16x299"),
        ("mnasnet-fp16-last", "mnasnet1_0", {}, images, rmsprop, "64x224 amp-fp16 channels_last"),
        ("mobilenet-v2-fp32", "mobilenet_v2", {}, images, sgd, "32x224"),
        ("alexnet-fp32", "alexnet", {}, images, sgd, "256x224"),
        ("resnext50-fp32", "resnext50_32x4d", {}, images, adamw, "16x224"),
        ("swin-v2-fp16", "swin_v2_t", {}, images, adamw, "16x256 amp-fp16"),
        ("maxvit-fp32", "maxvit_t", {}, images, adamw, "8x224"),
        ("mc3-fp32", "video.mc3_18", {}, clips, sgd, "4x112"),
        ("r2plus1d-bf16", "video.r2plus1d_18", {}, clips, sgd, "4x112 amp-bf16"),
        ("s3d-fp16", "video.s3d", {}, clips, sgd, "4x224 amp-fp16"),
        ("mvit-bf16", "video.mvit_v1_b", {}, clips, adamw, "2x224 amp-bf16"),
        ("swin3d-fp16", "video.swin3d_t", {}, clips, adamw, "2x224 amp-fp16"),
        ("deeplab-mobile-fp32", "segmentation.deeplabv3_mobilenet_v3_large", {"weights_backbone": None,
         "num_classes": 4, "aux_loss": True}, data.masks, sgd, "16x320"),
        ("efficientnet-v2-bf16", "efficientnet_v2_s", {}, images, adamw, "16x224 amp-bf16"),
        ("wide-resnet-fp32-last", "wide_resnet50_2", {}, images, sgd, "16x224 channels_last"),
        ("convnext-small-fp32", "convnext_small", {}, images, adamw, "8x224"),
        ("mvit-v2-fp32", "video.mvit_v2_s", {}, clips, adamw, "1x224"),
        ("resnet34-tf32-last", "resnet34", {}, images, rmsprop, "64x224 tf32 channels_last"),
        ("raft-fp32", "optical_flow.raft_small", {}, data.flows, adamw, "4x256"),
        ("raft-large-bf16", "optical_flow.raft_large", {}, data.flows, adamw, "2x256 amp-bf16"),
    ]
    # fmt: on


def _settings(text: str) -> Settings:
    """Parse the batch, the size and the settings that differ from the defaults."""
    shape, *words = text.split()
    batch, size = (int(number) for number in shape.split("x"))
    return Settings(
        batch=batch,
        size=size,
        precision=next((word for word in words if word in PRECISIONS), "fp32"),
        memory_format="channels_last" if "channels_last" in words else "contiguous",
        checkpointing="blocks" if "blocks" in words else "none",
    )


def _step_of(name: str) -> Step:
    if name.startswith(("detr", "yolos")):
        return box_loss
    return flow_loss if name.startswith("raft") else class_loss


def _configs() -> Iterator[Config]:
    ours = [*_encoders(), *_decoders(), *_sequence_pairs(), *_vision_and_audio()]
    libraries: tuple[tuple[list[Row], Callable[[str, dict[str, Any]], Build], str], ...] = (
        (ours, _transformers, "transformers"),
        (_timm_rows(), _timm, "timm"),
        (_torchvision_rows(), _torchvision, "torchvision"),
    )
    for rows, builder, library in libraries:
        for name, model, options, batch, optimizer, settings in rows:
            is_hf_loss = library == "transformers" and not name.startswith(("detr", "yolos"))
            step = model_loss if is_hf_loss else _step_of(name)
            job = Job(model=builder(model, options), batch=batch, step=step, optimizer=optimizer)
            yield Config(name, library, job, _settings(settings))


def third_party() -> dict[str, Config]:
    """Return the third-party configurations by name."""
    return {config.name: config for config in _configs()}
