"""Advice about GPU memory in the words of the library that ran out of it."""

from __future__ import annotations

from . import _common_advice as common
from ._kinds import Advice
from ._situation import Phase, Situation, Speaker

# Library by library: how its users make a run need less GPU memory.
_BY_SPEAKER: dict[Speaker, tuple[Advice, ...]] = {
    Speaker.YOLOV5: (
        Advice(
            "Use smaller batches:", "$ python train.py --batch-size 8 --img 640 --data data.yaml --weights yolov5s.pt"
        ),
        Advice(
            "Use smaller images, or a smaller model:",
            "$ python train.py --img 416 --weights yolov5n.pt --batch-size 16",
        ),
        Advice("Let it measure the largest batch that fits:", "$ python train.py --batch-size -1"),
    ),
    Speaker.ULTRALYTICS: (
        Advice("Use smaller batches:", "$ yolo train model=yolo11n.pt data=data.yaml batch=8 imgsz=640"),
        Advice("Use smaller images:", "$ yolo train model=yolo11n.pt data=data.yaml imgsz=416 batch=16"),
        Advice(
            "Let it measure a batch that uses 60% of the GPU:", "$ yolo train model=yolo11n.pt data=data.yaml batch=-1"
        ),
    ),
    Speaker.HUGGINGFACE: (
        Advice(
            "Use smaller batches with accumulation and checkpointing: the effective batch size stays the same.",
            "per_device_train_batch_size=4, gradient_accumulation_steps=8, gradient_checkpointing=True",
        ),
        Advice("Use bf16 and 8-bit optimizer states:", 'TrainingArguments(bf16=True, optim="adamw_bnb_8bit")'),
        Advice(
            "Train only adapters (LoRA) on a model in 4 bits:",
            "model = get_peft_model(model, LoraConfig(r=16)); BitsAndBytesConfig(load_in_4bit=True)",
        ),
    ),
    Speaker.LIGHTNING: (
        Advice(
            "Use smaller batches with accumulation, and bf16:",
            'Trainer(accumulate_grad_batches=4, precision="bf16-mixed")  # and batch_size // 4 in the DataLoader',
        ),
        Advice(
            "Recompute activations in the backward pass:",
            "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        ),
        Advice("Or shard the model over the GPUs:", 'Trainer(strategy="fsdp", devices=-1)'),
    ),
    Speaker.DEEPSPEED: (
        Advice(
            "Use smaller micro-batches with accumulation in the DeepSpeed config:",
            '"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16',
        ),
        Advice(
            "Shard parameters and move optimizer states to RAM:",
            '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}',
        ),
        Advice("Recompute activations in the backward pass:", "model.gradient_checkpointing_enable()"),
    ),
    Speaker.NNUNET: (
        Advice(
            "Plan for less GPU memory; patches and batches become smaller:",
            "$ nnUNetv2_plan_experiment -d DATASET -gpu_memory_target 6",
        ),
        Advice("For predictions, keep the result off the GPU:", "$ nnUNetv2_predict … --not_on_device"),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.VLLM: (
        Advice(
            "Use shorter sequences: the KV cache shrinks.", "$ vllm serve MODEL --max-model-len 8192 --max-num-seqs 64"
        ),
        Advice(
            "Change vLLM's share of the GPU: higher if the KV cache doesn't fit, lower if the GPU is shared.",
            "$ vllm serve MODEL --gpu-memory-utilization 0.95 --enforce-eager",
        ),
        Advice(
            "Split the model over GPUs, or use a quantized one:",
            "$ vllm serve MODEL --tensor-parallel-size 2 --quantization fp8",
        ),
    ),
    Speaker.DARKNET: (
        Advice("Split each batch further in the .cfg file (32 or 64; batch stays the same):", "subdivisions=32"),
        Advice("Use a smaller network input in the .cfg file, a multiple of 32:", "width=416 height=416 random=0"),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.DIFFUSION_TRAINING: (
        Advice(
            "Use smaller batches with accumulation, and recompute activations:",
            "--train_batch_size 1 --gradient_accumulation_steps 4 --gradient_checkpointing",
        ),
        Advice("Keep the optimizer's states in 8 bits, and train in bf16:", "--use_8bit_adam --mixed_precision bf16"),
        Advice("Train at a smaller resolution, or only adapters (LoRA):", "--resolution 512"),
    ),
    Speaker.DIFFUSERS: (
        Advice(
            "Use a smaller resolution or one image at a time:",
            "pipe(prompt, height=512, width=512, num_images_per_prompt=1)",
        ),
        Advice(
            "Keep only the running part on the GPU (ComfyUI: --lowvram; the web UI: --medvram):",
            "pipe.enable_model_cpu_offload(); pipe.vae.enable_tiling()",
        ),
        Advice(
            "Load the weights in half precision:", "DiffusionPipeline.from_pretrained(NAME, torch_dtype=torch.float16)"
        ),
    ),
    Speaker.LLAMA_CPP: (
        Advice("Put fewer layers on the GPU:", "$ llama-server -m MODEL.gguf -ngl 20"),
        Advice("Use a shorter context, whose KV cache is smaller:", "$ llama-server -m MODEL.gguf -c 4096"),
        Advice("Use a smaller quantization of the model (Q4_K_M):", "$ ls *Q4_K_M*.gguf"),
    ),
    Speaker.TENSORFLOW: (
        Advice("Use smaller batches:", "model.fit(x, y, batch_size=16)"),
        Advice(
            "Let TensorFlow allocate only what it needs, instead of the whole GPU at the start:",
            'for gpu in tf.config.list_physical_devices("GPU"): tf.config.experimental.set_memory_growth(gpu, True)',
        ),
        Advice("Use mixed precision:", 'tf.keras.mixed_precision.set_global_policy("mixed_float16")'),
    ),
    Speaker.JAX_TPU: (
        Advice("Use smaller batches, or recompute activations in the backward pass:", "loss = jax.checkpoint(loss)"),
        Advice(
            "Shard the weights and optimizer states over the cores, instead of one copy on each:",
            "jax.device_put(state, NamedSharding(mesh, PartitionSpec('data')))",
        ),
        Advice("Compute in bfloat16:", "x = x.astype(jnp.bfloat16)"),
    ),
    Speaker.JAX: (
        Advice("Use smaller batches, or recompute activations in the backward pass:", "loss = jax.checkpoint(loss)"),
        Advice(
            "JAX takes 75% of the GPU at the start. Give it more, or let it allocate only what it needs "
            "(XLA_PYTHON_CLIENT_PREALLOCATE=false):",
            "$ XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 python train.py",
        ),
        Advice("Reuse the memory of the old state for the new one:", "step = jax.jit(step, donate_argnums=(0,))"),
    ),
    Speaker.PADDLE: (
        Advice("Use smaller batches, or smaller images:", "DataLoader(dataset, batch_size=8)"),
        Advice(
            "Let Paddle allocate only what it needs:",
            "$ FLAGS_allocator_strategy=auto_growth FLAGS_fraction_of_gpu_memory_to_use=0.9 python train.py",
        ),
        Advice("Stop other processes on the GPU:", "$ nvidia-smi"),
    ),
    Speaker.MXNET: (
        Advice("Use smaller batches:", "$ python train.py --batch-size 16"),
        Advice("Waste less of the memory pool when shapes vary:", "$ MXNET_GPU_MEM_POOL_TYPE=Round python train.py"),
        Advice("Stop other processes on the GPU:", "$ nvidia-smi"),
    ),
    Speaker.CATBOOST: (
        Advice("Use shallower trees with fewer borders:", 'CatBoost(dict(task_type="GPU", depth=6, border_count=32))'),
        Advice(
            "Let it use more or less of the GPU (0.95 by default):", 'CatBoost(dict(task_type="GPU", gpu_ram_part=0.8))'
        ),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.LIGHTGBM: (
        Advice("Use fewer bins and leaves:", 'lightgbm.train(dict(device="gpu", max_bin=63, num_leaves=63), data)'),
        Advice("Train on the CPU, whose memory is larger:", 'lightgbm.train(dict(device="cpu"), data)'),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.MLX: (
        Advice("Use smaller batches, and recompute activations:", "$ mlx_lm.lora --batch-size 1 --grad-checkpoint …"),
        Advice("Train fewer layers, on shorter sequences:", "$ mlx_lm.lora --num-layers 4 --max-seq-length 1024 …"),
        Advice("Start from a model in 4 bits:", "$ mlx_lm.convert --hf-path NAME -q"),
    ),
    Speaker.R: (
        Advice("Use smaller batches:", "dataloader(dataset, batch_size = 8)"),
        Advice("Release what isn't used any more:", "rm(x); gc(); cuda_empty_cache()"),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.RAPIDS: (
        Advice(
            "Use smaller parts of the data, or fewer bins (XGBoost: max_bin):",
            "xgboost.QuantileDMatrix(x, y, max_bin=128)",
        ),
        Advice("Let the GPU's allocator use RAM too:", "rmm.reinitialize(managed_memory=True)"),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.CUPY: (
        Advice("Process the data in smaller parts:", "for part in cupy.array_split(x, 8):"),
        Advice("Release cached blocks between parts:", "cupy.get_default_memory_pool().free_all_blocks()"),
        Advice("Stop other processes on the GPU:", "$ nvidia-smi"),
    ),
    Speaker.ONNXRUNTIME: (
        Advice("Use smaller batches or inputs:", "session.run(None, {name: x[:8]})"),
        Advice(
            "Let the arena grow only by what is requested, and limit it (gpu_mem_limit):",
            'providers=[("CUDAExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})]',
        ),
        Advice("Stop other processes on the GPU:", "$ nvidia-smi"),
    ),
    Speaker.TENSORRT: (
        Advice("Limit the builder's workspace:", "$ trtexec --memPoolSize=workspace:4096 …"),
        Advice(
            "Build for smaller batches or shapes:", "$ trtexec --optShapes=x:1x3x640x640 --maxShapes=x:4x3x640x640 …"
        ),
        common.PROCESSES_ON_GPU,
    ),
}
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
_PRETRAINED = Advice(
    "Load the weights in half precision or 4 bits, without a second copy:",
    'from_pretrained(NAME, torch_dtype="auto", device_map="auto", low_cpu_mem_usage=True)',
)


_WITH_PHASES = {Speaker.PYTORCH, Speaker.RAY, Speaker.HUGGINGFACE, Speaker.LIGHTNING, Speaker.UNKNOWN}


def less_gpu_memory(situation: Situation) -> tuple[Advice, ...]:
    """Return how the users of a library make it need less GPU memory, best first; empty if it is unknown."""
    advice = _BY_SPEAKER.get(situation.speaker, ())
    if situation.speaker not in _WITH_PHASES:
        return advice
    first = 0 if situation.is_phase_certain else 1
    return (*advice[:first], *_phase_advice(situation), *advice[first:])


def _phase_advice(situation: Situation) -> tuple[Advice, ...]:
    if situation.speaker is Speaker.HUGGINGFACE and situation.phase is Phase.EVALUATING:
        return (_HF_EVALUATION,)
    if situation.speaker is Speaker.HUGGINGFACE and situation.phase is Phase.LOADING:
        return (_PRETRAINED,)
    advice = _BY_PHASE.get(situation.phase)
    return () if advice is None else (advice,)
