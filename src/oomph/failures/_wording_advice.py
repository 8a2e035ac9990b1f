"""Advice for single wordings whose remedy is more specific than that of their kind."""

from __future__ import annotations

import re

from ._kinds import Advice

_TABLE: tuple[tuple[str, Advice], ...] = (
    (
        r"OMP: Error #15|libiomp5",
        Advice(
            "Two copies of OpenMP are loaded, mostly from pip and conda. Keep one of them, or as a stopgap:",
            "$ export KMP_DUPLICATE_LIB_OK=TRUE",
        ),
    ),
    (
        r"[Ii]llegal instruction|SIGILL",
        Advice(
            "The build uses instructions (AVX) that this CPU doesn't have. Install another version, or compile it "
            "here. See what the CPU has:",
            "$ lscpu | grep -i -o -E 'avx[^ ]*|sse4[^ ]*'",
        ),
    ),
    (
        r"static TLS block",
        Advice(
            "Other libraries left no space for this one. Import it before them, or load it with the program:",
            "$ LD_PRELOAD=/path/of/the/library/in/the/message.so python train.py",
        ),
    ),
    (
        r"Can't pickle|cannot pickle",
        Advice(
            "Spawned workers can't receive lambdas and functions inside functions: move them to the top level of a "
            "module, or load without workers:",
            "DataLoader(dataset, num_workers=0)",
        ),
    ),
    (
        r"GLIBCXX_|CXXABI_|libstdc\+\+",
        Advice(
            "The library needs a newer libstdc++ than the system's. Install it, and let it be found first:",
            "$ conda install -c conda-forge libstdcxx-ng; export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
        ),
    ),
    (
        r"could not select device driver",
        Advice(
            "Docker has no GPU runtime: install nvidia-container-toolkit, then restart docker.",
            "$ sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        ),
    ),
    (
        r"[Dd]river/library version mismatch",
        Advice(
            "The driver was updated, but the kernel still runs the old one. Restart the machine, or load the new one:",
            "$ sudo reboot  # or stop all GPU programs, then: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia",
        ),
    ),
    (
        r"Insufficient nvidia\.com/gpu",
        Advice(
            "No node has a free GPU: wait, request fewer, or free some. See who has them:",
            "$ kubectl describe nodes | grep -A8 'Allocated resources'",
        ),
    ),
    (
        r"deserialize object on a CUDA device",
        Advice("Map the checkpoint to the CPU when you load it:", 'torch.load(path, map_location="cpu")'),
    ),
    (
        r"backward through the graph a second time",
        Advice(
            "Call backward once per graph: detach what is kept from earlier steps (hidden states, losses).",
            "hidden = hidden.detach()",
        ),
    ),
    (
        r"ailed to find C compiler|error: command 'gcc' failed|gcc: not found|No such file.*gcc",
        Advice("Install a C compiler, or name it in CC:", "$ sudo apt install build-essential; export CC=gcc"),
    ),
    (
        r"unexpected keyword argument|got an unexpected keyword|has no attribute|cannot import name|deprecated",
        Advice(
            "The argument or name belongs to another version of the library. Compare the installed version with the "
            "one that the code was written for:",
            "$ pip show PACKAGE",
        ),
    ),
    (
        r"allow_pickle=False",
        Advice("The file contains Python objects. If you trust it:", "np.load(path, allow_pickle=True)"),
    ),
    (
        r"Duplicate GPU detected",
        Advice(
            "Two ranks use the same GPU. Give each its own:", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
        ),
    ),
    (
        r"waiting for clients|clients joined",
        Advice(
            "Not all ranks could connect. Check address, port, firewall and the number of nodes of every rank:",
            "$ echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK; nc -vz $MASTER_ADDR $MASTER_PORT",
        ),
    ),
    (
        r"quantile\(\) input tensor is too large",
        Advice(
            "Use a sample, or sort in chunks (torch.kthvalue, np.quantile):", "q = np.quantile(x.cpu().numpy(), 0.95)"
        ),
    ),
    (
        r"ephemeral[- ](?:local )?storage",
        Advice(
            "Write checkpoints and caches to a volume, or raise the limit of ephemeral storage (disk) of the pod:",
            "resources: {limits: {ephemeral-storage: 200Gi}}",
        ),
    ),
    (
        r"ibv_\w+ failed with error Cannot allocate",
        Advice(
            "InfiniBand registers locked memory, whose limit is too low. Raise it in /etc/security/limits.conf, and of "
            "the service that starts the job (Slurm: LimitMEMLOCK=infinity; Docker: --ulimit memlock=-1):",
            "* soft memlock unlimited\n* hard memlock unlimited",
        ),
    ),
    (
        r"invalid load key, '[v<]'",
        Advice(
            "The file isn't the checkpoint but a pointer to it (Git LFS), or a web page. Look at it, then download the "
            "file itself:",
            "$ head -c 200 CHECKPOINT; git lfs pull",
        ),
    ),
    (
        r"TERM_THREADLIMIT",
        Advice("Request more threads, or use fewer per process:", "#BSUB -T 4000  # or OMP_NUM_THREADS=1"),
    ),
    (
        r"PREEMPTION|preempt",
        Advice("Let the scheduler start it again, and resume from the last checkpoint:", "#SBATCH --requeue"),
    ),
    (
        r"killed by YARN|memoryOverhead",
        Advice(
            "Give the executors more memory beside the heap, or use smaller partitions:",
            "$ spark-submit --conf spark.executor.memoryOverhead=8g …",
        ),
    ),
    (
        r"KilledWorker|memory budget|distributed\.(?:nanny|worker)",
        Advice(
            "Give each Dask worker more memory, with fewer workers or smaller partitions:",
            'Client(n_workers=2, memory_limit="16GB")',
        ),
    ),
    (
        r"abruptly died during map",
        Advice(
            "Use fewer processes, and write smaller batches:",
            "dataset.map(function, num_proc=2, writer_batch_size=100)",
        ),
    ),
    (
        r"ailed to allocate [1-9][\d.]*G.{0,40}from device",
        Advice(
            "JAX and TensorFlow reserve most of the GPU when they start, but another process already uses part of it. "
            "Stop that process, or let this one allocate only what it needs (TensorFlow: set_memory_growth):",
            "$ nvidia-smi; export XLA_PYTHON_CLIENT_PREALLOCATE=false",
        ),
    ),
    (
        r"No executable batch size found",
        Advice(
            "Not even one sample fits, so the batch isn't the problem: train adapters on a model in 4 bits, use a "
            "smaller model or shorter sequences:",
            "model = get_peft_model(model, LoraConfig(r=16)); BitsAndBytesConfig(load_in_4bit=True)",
        ),
    ),
    (
        r"modules are dispatched on the CPU",
        Advice(
            "The quantized model doesn't fit on the GPUs. Load it in 4 bits, use a smaller one, or permit that a part "
            "stays in RAM, which is slow:",
            "BitsAndBytesConfig(load_in_4bit=True)  # or load_in_8bit=True, llm_int8_enable_fp32_cpu_offload=True",
        ),
    ),
    (
        r"No available memory for the cache blocks",
        Advice(
            "The weights leave no space for the KV cache. Give vLLM more of the GPU, or use a quantized or smaller "
            "model, or more GPUs (--tensor-parallel-size 2):",
            "$ vllm serve MODEL --gpu-memory-utilization 0.95 --quantization fp8",
        ),
    ),
    (
        r"allocate buffer for kv cache",
        Advice(
            "The KV cache doesn't fit: use a shorter context, and quantize the cache.",
            "$ llama-server -m MODEL.gguf -c 8192 -fa on -ctk q8_0 -ctv q8_0",
        ),
    ),
    (
        r"File size limit exceeded",
        Advice(
            "A limit on the size of files ended it. Remove it in the shell that starts the run:",
            "$ ulimit -f unlimited",
        ),
    ),
    (
        r"EmptyDir volume \"",
        Advice(
            "Raise the limit of the volume, or write less to it:",
            "emptyDir: {medium: Memory, sizeLimit: 16Gi}",
        ),
    ),
    (
        r"requires more system memory",
        Advice("Use a smaller model or quantization, or free RAM:", "$ ollama run llama3.2:3b"),
    ),
    (
        r"ALLOC_FAILED.*cublasCreate",
        Advice(
            "An index out of range (a label, a token) may have come before it and be the real cause. Find it:",
            "$ CUDA_LAUNCH_BLOCKING=1 python train.py",
        ),
    ),
)
_COMPILED = tuple((re.compile(pattern), advice) for pattern, advice in _TABLE)


def wording_advice(message: str) -> tuple[Advice, ...]:
    """Return the advice for the wording of a message; empty if there is none."""
    return tuple(advice for pattern, advice in _COMPILED if pattern.search(message))[:1]
