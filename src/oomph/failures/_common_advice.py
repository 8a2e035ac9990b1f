"""Advice that several causes and speakers share."""

from __future__ import annotations

from ._kinds import Advice

SMALLER_STEP = Advice(
    "Use smaller micro-batches and accumulate their gradients; oomph.guard splits a step that doesn't fit, and keeps "
    "the effective batch size:",
    "guard = oomph.guard(model=model, optimizer=optimizer, loss=loss); guard.step(batch)",
)
AUTOCAST = Advice(
    "Use mixed precision (bf16; before Ampere fp16 with a GradScaler): activations take half the memory.",
    'with torch.autocast("cuda", dtype=torch.bfloat16):',
)
CHECKPOINTING = Advice(
    "Recompute activations in the backward pass instead of keeping them (activation checkpointing):",
    "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
)
SMALLER_INPUTS = Advice("Use smaller inputs: a smaller image size, crops or patches, or shorter sequences.")
RESTART_KERNEL = Advice(
    "In a notebook, models of earlier cells and runs still hold memory. Restart the kernel, or delete them:",
    "del model, optimizer; import gc, torch; gc.collect(); torch.cuda.empty_cache()",
)
PAGE_FILE = Advice(
    "Let Windows manage the page file, or enlarge it: Advanced > Performance > Virtual memory in:",
    "$ SystemPropertiesAdvanced.exe",
)
PREDICT = Advice(
    "Find the batch size and settings that fit before you run it:",
    "$ oomph plan FILE.py:FUNCTION --gpu NAME",
)
HEADROOM = Advice(
    "Leave a few hundred MiB free for the driver and the libraries:",
    "torch.cuda.set_per_process_memory_fraction(0.95)",
)
PROCESSES_ON_GPU = Advice(
    "List the processes on the GPU, and stop those that shouldn't run (an older run, a notebook):", "$ nvidia-smi"
)
BLOCKING = Advice(
    "CUDA reports errors late. Run once with blocking launches, or on the CPU, to find the real line:",
    "$ CUDA_LAUNCH_BLOCKING=1 python train.py",
)

FEWER_WORKERS = Advice(
    "Use fewer loader workers and a smaller prefetch_factor: each worker holds its own batches in memory.",
    "DataLoader(dataset, num_workers=2, prefetch_factor=2)",
)
NO_CACHE = Advice(
    "Don't hold the dataset in RAM: read each sample when it is needed, or map the file.",
    'data = np.load("data.npy", mmap_mode="r")',
)
CHUNKS = Advice(
    "Read and process the data in chunks, with smaller dtypes (float32 instead of float64):",
    'for chunk in pd.read_csv("data.csv", chunksize=100_000, dtype="float32"):',
)
WATCH = Advice("Watch the memory of the next run and of its workers, and see what grows:", "$ oomph watch PID")
DOCTOR = Advice("See which limits apply to memory on this machine:", "$ oomph doctor")
KERNEL_LOG = Advice("Check whether the kernel killed it:", "$ sudo dmesg -T | grep -i -E 'out of memory|oom-kill'")
NO_WORKERS = Advice("Run once without workers to see the worker's own error:", "DataLoader(dataset, num_workers=0)")
LARGER_SHM = Advice("Give the container more shared memory:", "$ docker run --shm-size=8g …")
KUBERNETES_SHM = Advice(
    "Mount memory at /dev/shm of the pod:",
    "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]  # volumeMounts: mountPath: /dev/shm",
)
LESS_SHM = Advice(
    "Use fewer loader workers, a smaller prefetch_factor, or no workers:",
    "DataLoader(dataset, num_workers=0)",
)
EXPANDABLE_SEGMENTS = Advice(
    "Let the allocator grow its segments (before torch 2.9 the variable is PYTORCH_CUDA_ALLOC_CONF):",
    "$ export PYTORCH_ALLOC_CONF=expandable_segments:True",
)
