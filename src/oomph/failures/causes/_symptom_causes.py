"""Causes of memory symptoms and of numerical errors."""

from __future__ import annotations

from .. import _common_advice as common
from .._kinds import Advice, Cause, FailureKind, Family, Resource

SYMPTOM_CAUSES = (
    Cause(
        FailureKind.THRASHING,
        "The allocator is thrashing: steps run, but barely fit",
        "The allocator repeatedly finds no block, releases all cached blocks to the driver and allocates again. Each "
        "retry waits milliseconds for the GPU, and cuDNN falls back to slower plans.",
        (
            Advice(
                "Use slightly smaller micro-batches: the steps become faster. oomph.guard finds the size:",
                common.SMALLER_STEP.command,
            ),
            common.AUTOCAST,
        ),
        Family.SYMPTOM,
        resource=Resource.GPU,
        lint_rules=("empty-cache-in-loop",),
        myth="empty_cache() in the loop saves memory",
    ),
    Cause(
        FailureKind.DEVICE_LEAK,
        "Device memory leaks: it grows with every step",
        "Something keeps tensors alive: a list of losses with their graphs, hooks, a growing cache, retained graphs.",
        (
            Advice("Log the number, never the loss itself: it keeps its whole graph.", "total += loss.item()"),
            Advice(
                "Clear lists of outputs at the end of each epoch, and remove hooks:", "outputs.clear(); handle.remove()"
            ),
            Advice(
                "Find it: record allocations, and look at a snapshot after two epochs.",
                "torch.cuda.memory._record_memory_history()",
            ),
        ),
        Family.SYMPTOM,
        resource=Resource.GPU,
        lint_rules=("loss-keeps-graph", "outputs-keep-graph", "hook-not-removed", "retain-graph-in-loop"),
    ),
    Cause(
        FailureKind.HOST_LEAK,
        "Host memory leaks: it grows with every step",
        "Something keeps objects alive: a list of losses or predictions, or an unbounded cache. Or loader workers copy "
        "the pages of Python objects that they touch.",
        (
            Advice("Keep numbers instead of tensors, and limit every cache.", "@functools.lru_cache(maxsize=1000)"),
            Advice("Store lists of paths and labels as arrays:", "self.paths = np.array(paths)"),
            Advice("Start new workers each epoch:", "DataLoader(dataset, persistent_workers=False)"),
        ),
        Family.SYMPTOM,
        resource=Resource.RAM,
        lint_rules=("loss-keeps-graph", "dataset-in-memory"),
    ),
    Cause(
        FailureKind.FRAGMENTATION,
        "Memory is fragmented: reserved, but in blocks that are too small",
        "The allocator has cached blocks that no tensor uses, and none is large enough for the request.",
        (
            common.EXPANDABLE_SEGMENTS,
            Advice(
                "Use batches of one shape: they cause less fragmentation than batches of many shapes.",
                'batch = tokenizer(texts, padding="max_length", max_length=512)',
            ),
            common.SMALLER_STEP,
        ),
        Family.SYMPTOM,
        resource=Resource.GPU,
    ),
    Cause(
        FailureKind.OTHER_PROCESS,
        "Another process uses GPU memory",
        "A notebook, an older run that is still alive, a desktop or another user occupies part of the GPU.",
        (
            Advice("Find it, and stop it or wait for it:", "$ nvidia-smi"),
            Advice("Or use another GPU:", "$ CUDA_VISIBLE_DEVICES=1 python train.py"),
        ),
        Family.SYMPTOM,
        resource=Resource.GPU,
    ),
    Cause(
        FailureKind.MEMORY_CAP,
        "The process may use only a fraction of the GPU",
        "A memory fraction, or a server that partitions the GPU, refuses memory that is free on the card.",
        (Advice("Raise the fraction:", "torch.cuda.set_per_process_memory_fraction(1.0)"),),
        Family.SYMPTOM,
        resource=Resource.GPU,
    ),
    Cause(
        FailureKind.SPILL,
        "GPU memory spills into RAM",
        "The Windows driver (also under WSL) moves data that doesn't fit on the card to RAM, behind the PCIe bus. It "
        "reports no error, and steps take 10 to 100 times as long.",
        (
            Advice(
                "Cap torch below the card's memory, so that it fails or splits instead of slowing down:",
                "torch.cuda.set_per_process_memory_fraction(0.9)",
            ),
            Advice('In the NVIDIA control panel, set "CUDA - Sysmem Fallback Policy" to "Prefer No Sysmem Fallback".'),
            common.SMALLER_STEP,
        ),
        Family.SYMPTOM,
        resource=Resource.GPU,
        myth="GPU memory overflows into the page file",
    ),
    Cause(
        FailureKind.PAGING,
        "The machine is swapping memory to disk",
        "RAM is full, and the system moves pages to disk. Every page that is read back blocks a thread for "
        "milliseconds.",
        (common.FEWER_WORKERS, common.NO_CACHE, common.DOCTOR),
        Family.SYMPTOM,
        resource=Resource.RAM,
    ),
    Cause(
        FailureKind.STARVED,
        "Steps wait for data",
        "The loader is slower than the training steps, because reading or decoding is slow. Memory is not the problem.",
        (
            Advice(
                "Use more loader workers, up to the number of cores, if RAM allows.",
                "DataLoader(dataset, num_workers=os.cpu_count())",
            ),
            Advice("Decode smaller images, cache on a fast disk, or move augmentation to the GPU."),
        ),
        Family.SYMPTOM,
    ),
    Cause(
        FailureKind.UNEXPECTED_END,
        "The run ended unexpectedly",
        "The Record stops without an end and without an error: the process was killed or crashed, or the machine went "
        "down.",
        (
            Advice("Check the system log of that time:", "$ sudo dmesg -T | tail -n 50"),
            Advice("Explain the output of the run:", "$ oomph explain LOG"),
        ),
        Family.SYMPTOM,
    ),
)

NUMERICS_CAUSES = (
    Cause(
        FailureKind.NON_FINITE_LOSS,
        "The loss is NaN or infinite",
        "A value left the range of the precision, or a division by zero or a logarithm of zero occurred. Memory is not "
        "the problem, and a smaller batch doesn't fix it.",
        (
            Advice(
                "Lower the learning rate or use a longer warmup, and clip gradients.",
                "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ),
            Advice(
                "With fp16, switch to bf16, or compute the loss in fp32.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):',
            ),
            Advice(
                "Find the operation, or a broken sample (NaN in images, empty boxes):",
                "torch.autograd.set_detect_anomaly(True)",
            ),
        ),
        Family.NUMERICS,
        lint_rules=("half-with-scaler", "fp16-adam-eps", "clip-without-unscale"),
    ),
    Cause(
        FailureKind.NON_FINITE_GRADIENTS,
        "Gradients are NaN or infinite",
        "The backward pass left the range of the precision. A step with such gradients corrupts the weights.",
        (
            Advice(
                "Clip gradients, and lower the learning rate.",
                "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ),
            Advice(
                "With fp16, use a gradient scaler; bf16 needs none.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):',
            ),
            Advice(
                "Find the operation, then resume from the last checkpoint before it:",
                "torch.autograd.set_detect_anomaly(True)",
            ),
        ),
        Family.NUMERICS,
        lint_rules=("clip-without-unscale", "half-with-scaler", "fp16-adam-eps"),
    ),
    Cause(
        FailureKind.SKIPPED_STEPS,
        "The gradient scaler skipped many steps",
        "Gradients overflow in fp16 at every scale, and skipped steps learn nothing. A few skipped steps at the start "
        "are normal.",
        (
            Advice(
                "Use bf16 if the GPU supports it (compute capability 8.0 and later).",
                'with torch.autocast("cuda", dtype=torch.bfloat16):',
            ),
            Advice(
                "Compute the loss and layers with large sums in fp32; clip gradients after unscaling:",
                "scaler.unscale_(optimizer); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ),
        ),
        Family.NUMERICS,
        lint_rules=("clip-without-unscale", "scaler-not-updated", "half-with-scaler"),
    ),
)
