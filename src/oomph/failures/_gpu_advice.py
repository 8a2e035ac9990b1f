"""Advice about GPU memory in the words of the library that ran out of it."""

from __future__ import annotations

from ._gpu_advice_by_speaker import GPU_ADVICE
from ._kinds import Advice
from ._situation import Phase, Situation, Speaker

_WEIGHTS_ALONE = (
    Advice(
        "The weights alone don't fit; no batch exists yet. Load them in half precision, or use a smaller model:",
        "model = model.to(torch.bfloat16).cuda()",
    ),
    Advice("Or shard them over several GPUs (FSDP2):", "torch.distributed.fsdp.fully_shard(model)"),
    Advice("See what the model needs on other GPUs:", "$ oomph predict train.py --gpu NAME"),
)
_BY_PHASE: dict[Phase, Advice] = {
    Phase.CREATING_STATES: Advice(
        "The optimizer's states don't fit, and smaller batches don't change them. Keep them in 8 bits (or shard them "
        "with FSDP, or train adapters):",
        "optimizer = torchao.optim.AdamW8bit(model.parameters(), lr=1e-4)",
    ),
    Phase.UPDATING: Advice(
        "Update the weights without temporary copies of all of them:",
        "torch.optim.AdamW(model.parameters(), fused=True)  # or foreach=False",
    ),
    Phase.SAVING: Advice(
        "Gather the weights in RAM on one rank, or save them sharded:",
        "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))",
    ),
    Phase.LOADING: Advice(
        "Load the checkpoint to RAM instead of the GPU:", 'torch.load(path, map_location="cpu", mmap=True)'
    ),
    Phase.GENERATING: Advice("Don't keep activations for a backward pass:", "with torch.inference_mode():"),
    Phase.EVALUATING: Advice(
        "Don't keep activations in validation, and use smaller batches there:", "with torch.no_grad():"
    ),
}
_HF_EVALUATION = Advice(
    "Move predictions to the CPU during evaluation, with smaller batches:",
    "TrainingArguments(per_device_eval_batch_size=4, eval_accumulation_steps=4)",
)
_LIGHTNING_EVALUATION = Advice(
    "Lightning validates without gradients already: use smaller batches or crops there.",
    "DataLoader(val_dataset, batch_size=1)",
)
_PRETRAINED = Advice(
    "Load the weights in half precision or 4 bits, without a second copy:",
    'from_pretrained(NAME, torch_dtype="auto", device_map="auto", low_cpu_mem_usage=True)',
)
_HF_WEIGHTS = (
    _PRETRAINED,
    Advice(
        "To train it, keep these weights frozen and train adapters (LoRA):",
        "model = get_peft_model(model, LoraConfig(r=16))",
    ),
    Advice("Or shard it over several GPUs:", "$ accelerate launch --use_fsdp --fsdp_version 2 train.py"),
)
_INFERENCE = (
    Advice("Don't keep activations for a backward pass:", "with torch.inference_mode():"),
    Advice("Use smaller batches or inputs, and half precision:", "model.half()"),
)
_HF_GENERATION = (
    Advice(
        "Load the model in 4 bits:", "from_pretrained(NAME, quantization_config=BitsAndBytesConfig(load_in_4bit=True))"
    ),
    Advice(
        "Generate for fewer or shorter prompts at once; the KV cache grows with both:",
        "model.generate(**inputs, max_new_tokens=256)",
    ),
    Advice("Keep the KV cache in RAM:", 'model.generate(**inputs, cache_implementation="offloaded")'),
)
_WITH_PHASES = {Speaker.PYTORCH, Speaker.RAY, Speaker.HUGGINGFACE, Speaker.LIGHTNING, Speaker.UNKNOWN}


def less_gpu_memory(situation: Situation) -> tuple[Advice, ...]:
    """Return how the users of a library make it need less GPU memory, best first; empty if it is unknown."""
    advice = GPU_ADVICE.get(situation.speaker, ())
    if situation.speaker is Speaker.MONAI:
        return _monai_advice(situation, advice)
    is_moving = situation.phase is Phase.MOVING_WEIGHTS and situation.is_phase_certain
    if situation.speaker is Speaker.DIFFUSERS and is_moving:
        return (*advice[1:], *advice[:1])  # no image exists yet
    if situation.speaker not in _WITH_PHASES:
        return advice
    if is_moving:
        return _HF_WEIGHTS if situation.speaker is Speaker.HUGGINGFACE else _WEIGHTS_ALONE
    if situation.phase is Phase.GENERATING and situation.is_phase_certain:
        return _HF_GENERATION if situation.speaker is Speaker.HUGGINGFACE else _INFERENCE
    first = 0 if situation.is_phase_certain else 1
    return (*advice[:first], *_phase_advice(situation), *advice[first:])


def _monai_advice(situation: Situation, advice: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """Return advice with gradients first in validation; windows are for inference."""
    if situation.phase is Phase.GENERATING:
        return advice
    if situation.phase is Phase.EVALUATING:
        return (_BY_PHASE[Phase.EVALUATING], *advice)
    return (*advice[1:2], *advice[:1], *advice[2:])


def _phase_advice(situation: Situation) -> tuple[Advice, ...]:
    if situation.speaker is Speaker.HUGGINGFACE and situation.phase is Phase.EVALUATING:
        return (_HF_EVALUATION,)
    if situation.speaker is Speaker.HUGGINGFACE and situation.phase is Phase.LOADING:
        return (_PRETRAINED,)
    if situation.speaker is Speaker.LIGHTNING and situation.phase is Phase.EVALUATING:
        return (_LIGHTNING_EVALUATION,)
    advice = _BY_PHASE.get(situation.phase)
    return () if advice is None else (advice,)
