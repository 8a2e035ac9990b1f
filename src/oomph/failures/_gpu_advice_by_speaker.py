"""How the users of each library make a run need less GPU memory."""

from __future__ import annotations

from . import _common_advice as common
from ._kinds import Advice
from ._situation import Speaker

# Library by library: how its users make a run need less GPU memory.
GPU_ADVICE: dict[Speaker, tuple[Advice, ...]] = {
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
        Advice("Use smaller mini-batches in the .cfg file (batch stays the same):", "subdivisions=32"),
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
    Speaker.YOLOV7: (
        Advice("Use smaller batches:", "$ python train.py --batch-size 8 --img 640 …"),
        Advice(
            "Use smaller images, or a smaller model (yolov7-tiny):",
            "$ python train.py --img 480 --cfg cfg/training/yolov7-tiny.yaml …",
        ),
        Advice(
            "Train without the auxiliary heads (train.py instead of train_aux.py), and in fp16:", "$ python train.py …"
        ),
    ),
    Speaker.MONAI: (
        Advice(
            "Collect the windows' results in RAM, and run few windows at once:",
            'sliding_window_inference(x, roi_size, 1, model, sw_device="cuda", device="cpu")',
        ),
        Advice(
            "Train on smaller or fewer patches per image:",
            "RandCropByPosNegLabeld(keys, spatial_size=(64, 64, 64), num_samples=1)",
        ),
        common.AUTOCAST,
    ),
    Speaker.OPENMMLAB: (
        Advice(
            "Assign boxes of crowded images on the CPU (detection):",
            "assigner=dict(type='MaxIoUAssigner', gpu_assign_thr=100, …)",
        ),
        Advice(
            "Use smaller batches or images, and fp16:",
            "train_dataloader=dict(batch_size=1); optim_wrapper=dict(type='AmpOptimWrapper')",
        ),
        Advice("Recompute activations of the backbone:", "backbone=dict(with_cp=True)"),
    ),
    Speaker.SGLANG: (
        Advice(
            "The weights leave too little of the GPU for the KV cache. Give the server a larger share:",
            "$ python -m sglang.launch_server --mem-fraction-static 0.92 …",
        ),
        Advice(
            "Split the model over GPUs, or use a quantized one:",
            "$ python -m sglang.launch_server --tp 2 --quantization fp8 …",
        ),
        Advice("Limit the context and the number of requests:", "$ … --context-length 8192 --max-running-requests 32"),
    ),
    Speaker.TGI: (
        Advice(
            "Reserve less for the prompts of one batch:", "$ text-generation-launcher --max-batch-prefill-tokens 2048 …"
        ),
        Advice(
            "Use a quantized model, or split it over GPUs:",
            "$ text-generation-launcher --quantize eetq --num-shard 2 …",
        ),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.COMFYUI: (
        Advice("Keep only the running part on the GPU:", "$ python main.py --lowvram"),
        Advice("Use a smaller image or batch, and decode it in tiles (node VAE Decode (Tiled)).", ""),
        Advice("Use a model in fp8 or GGUF:", "$ python main.py --lowvram --fp8_e4m3fn-unet"),
    ),
    Speaker.MEGATRON: (
        Advice("Use smaller micro-batches; the global batch stays the same:", "--micro-batch-size 1"),
        Advice(
            "Recompute activations in the backward pass:",
            "--recompute-activations  # or --recompute-granularity full --recompute-method uniform",
        ),
        Advice(
            "Shard the model and the optimizer's states further:",
            "--tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer",
        ),
    ),
    Speaker.TENSORFLOW_1: (
        Advice("Feed smaller batches:", "session.run(train_op, feed_dict={x: images[:16], y: labels[:16]})"),
        Advice(
            "Let TensorFlow allocate only what it needs, so that several programs fit:",
            "config = tf.ConfigProto(); config.gpu_options.allow_growth = True; tf.Session(config=config)",
        ),
        common.PROCESSES_ON_GPU,
    ),
    Speaker.FAISS: (
        Advice("Keep the vectors in half precision:", "options = faiss.GpuClonerOptions(); options.useFloat16 = True"),
        Advice("Use an index that compresses vectors:", 'index = faiss.index_factory(d, "IVF4096,PQ64")'),
        Advice(
            "Shard the index over several GPUs, or keep it in RAM:",
            "options = faiss.GpuMultipleClonerOptions(); options.shard = True",
        ),
    ),
}
# What comes instead of advice about batches where smaller ones don't help.
GPU_ADVICE_WITHOUT_BATCHES: dict[Speaker, Advice] = {
    Speaker.HUGGINGFACE: Advice(
        "Recompute activations in the backward pass, and use shorter sequences:",
        "gradient_checkpointing=True  # and tokenizer(text, truncation=True, max_length=512)",
    ),
    Speaker.LIGHTNING: Advice("Use mixed precision:", 'Trainer(precision="bf16-mixed")'),
    Speaker.DIFFUSION_TRAINING: Advice("Recompute activations in the backward pass:", "--gradient_checkpointing"),
    Speaker.JAX: Advice("Recompute activations in the backward pass:", "loss = jax.checkpoint(loss)"),
    Speaker.JAX_TPU: Advice("Recompute activations in the backward pass:", "loss = jax.checkpoint(loss)"),
    Speaker.MLX: Advice("Recompute activations in the backward pass:", "$ mlx_lm.lora --grad-checkpoint …"),
    Speaker.OPENMMLAB: Advice("Use smaller images, and fp16:", "optim_wrapper=dict(type='AmpOptimWrapper')"),
}
