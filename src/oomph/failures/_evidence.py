"""What people paste beside a message: limits, tables of the disk, GPU processes, warnings that came before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..units import GIB, MIB, format_size
from . import _common_advice as common
from ._details import Detail
from ._kinds import Advice, FailureKind, Resource
from ._situation import Situation, System

_GPU_KINDS = frozenset(
    {
        FailureKind.CUDA_OOM,
        FailureKind.DRIVER_OOM,
        FailureKind.LIBRARY_OOM,
        FailureKind.LIBRARY_ERROR,
        FailureKind.FRAMEWORK_OOM,
    }
)
_HOST_KINDS = frozenset(
    {
        FailureKind.MEMORY_ERROR,
        FailureKind.CPU_OOM,
        FailureKind.BAD_ALLOC,
        FailureKind.ENOMEM,
        FailureKind.ADDRESS_SPACE,
    }
)


@dataclass(frozen=True)
class Evidence:
    """What a pasted text shows about a failure: a sentence, the advice that follows, and what ran out if it differs."""

    detail: Detail
    resource: Resource | None = None


@dataclass(frozen=True)
class _Sign:
    """A pattern that is evidence for some kinds of failures; the sentence may use the pattern's groups."""

    kinds: frozenset[FailureKind]
    pattern: re.Pattern[str]
    sentence: str
    advice: tuple[Advice, ...]
    resource: Resource | None = None
    excludes_batches: bool = False


def _sign(
    kinds: FailureKind | frozenset[FailureKind],
    pattern: str,
    sentence: str,
    *advice: Advice,
    resource: Resource | None = None,
    excludes_batches: bool = False,
) -> _Sign:
    known = frozenset({kinds}) if isinstance(kinds, FailureKind) else kinds
    return _Sign(known, re.compile(pattern, re.MULTILINE), sentence, advice, resource, excludes_batches)


_PACK_FILES = Advice(
    "Pack small files into archives (tar, HDF5, WebDataset), or delete them. See which folders have most of them:",
    "$ du --inodes -x -d 3 . | sort -n | tail",
)
_READ_WHEN_NEEDED = Advice(
    "Read the images from the disk when they are needed (a Dataset, a generator):",
    "keras.utils.image_dataset_from_directory(PATH)  # or torchvision.datasets.ImageFolder(PATH)",
)
_SIGNS = (
    _sign(
        FailureKind.DISK_FULL,
        r"IUse%[^\n]*\n(?:[^\n]*\n)*?[^\n]*\b(?:9[89]|100)% ",
        "The file system has no inodes left: it has too many files, although there is space.",
        _PACK_FILES,
    ),
    _sign(
        FailureKind.DISK_QUOTA,
        r"\bfiles +quota +limit[^\n]*\n(?:[^\n]*\n)?[^\n*]*\s\d+[KMGT]? +(?:\S+ +){0,3}\d{4,}\*",
        "The number of files is over its quota, not their size.",
        _PACK_FILES,
    ),
    _sign(
        FailureKind.DISK_FULL,
        r"ephemeral[- ](?:local )?storage usage exceeds|EmptyDir volume",
        "The pod used more of the node's disk than its limits allow; the disk itself may have space.",
    ),
    _sign(
        _HOST_KINDS,
        r"overcommit_memory\W{0,12}2\b",
        "Strict overcommit (vm.overcommit_memory = 2) refuses memory although RAM is free: what all processes have "
        "reserved reaches CommitLimit.",
        Advice("Let the kernel promise more than it has:", "$ sudo sysctl vm.overcommit_memory=0"),
        Advice("Or raise the commit limit, or add swap:", "$ sudo sysctl vm.overcommit_ratio=95"),
        resource=Resource.COMMIT,
    ),
    _sign(
        _HOST_KINDS,
        r"\b32[- ]bit \((?:Intel|ARM)|\b32-?bit [Pp]ython|[Pp]ython[^\n]{0,40}\b32[- ]bit|\bwin32\b[^\n]{0,20}\b32 bit",
        "This Python is a 32-bit program, which can use 2 to 4 GiB on any machine.",
        Advice(
            "Install a 64-bit Python. This must print 64:",
            "$ python -c \"import struct; print(8 * struct.calcsize('P'))\"",
        ),
        resource=Resource.ADDRESS_SPACE,
    ),
    _sign(
        _HOST_KINDS,
        r"reshape[/\\]merge\.py|get_join_indexers|_libs\.join\.",
        "A merge multiplies the rows whose key occurs several times on both sides.",
        Advice(
            "Check the keys, and drop duplicates before the merge:",
            'left.merge(right.drop_duplicates("key"), on="key", validate="many_to_one")',
        ),
    ),
    _sign(
        FailureKind.OOM_KILL,
        r"replay buffer ([\d.]+ ?GB) > ([\d.]+ ?GB)",
        "The replay buffer needs {0}, and {1} of RAM was available, as a warning said before.",
        Advice(
            "Use a smaller replay buffer, or one that keeps each observation once:",
            "DQN(…, buffer_size=100_000, optimize_memory_usage=True)",
        ),
    ),
    _sign(
        frozenset({FailureKind.FRAMEWORK_OOM, FailureKind.IMPOSSIBLE_SIZE}),
        r"RandomUniform|RandomStandardNormal|TruncatedNormal|/Initializer/|in add_weight\b|in reset_parameters\b",
        "It is a weight of a layer that is being created, so smaller batches don't help.",
        Advice(
            "Make the layer smaller: pool before a dense layer instead of flattening the whole image:",
            "GlobalAveragePooling2D()  # or nn.AdaptiveAvgPool2d(1)",
        ),
        excludes_batches=True,
    ),
    _sign(
        FailureKind.FRAMEWORK_OOM,
        r"_EagerConst|convert_to_eager_tensor",
        "A whole array is copied to the GPU as one constant; the size of the batches doesn't matter.",
        Advice(
            "Keep the array in RAM, and copy batches only:",
            'with tf.device("CPU"): dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)',
        ),
        Advice(
            "Or read the samples from files:",
            "tf.data.Dataset.from_generator(read_samples, output_signature=spec).batch(32)",
        ),
        excludes_batches=True,
    ),
    _sign(
        _GPU_KINDS,
        r"Created (?:TensorFlow )?device[^\n]{0,160}?with (\d{1,3}) MB memory",
        "TensorFlow got only {0} MB of the GPU: other processes use the rest.",
        common.PROCESSES_ON_GPU,
        excludes_batches=True,
    ),
    _sign(
        _GPU_KINDS,
        r"split_cross_attention|sub_quad_attention|sd_hijack_optimizations|einsum\('b i d, ?b j d",
        "It is the attention matrix, which grows with the fourth power of the image's width.",
        Advice(
            "Use attention that doesn't keep the matrix, or upscale in tiles:",
            "--opt-sdp-attention  # or --xformers",
        ),
    ),
    _sign(
        _GPU_KINDS,
        r"query_states, key_states\.transpose|eager_attention_forward|attention_scores = torch\.matmul",
        "It is the attention matrix, which grows with the square of the sequence's length.",
        Advice(
            "Use attention that doesn't keep the matrix, and shorter sequences:",
            'from_pretrained(NAME, attn_implementation="sdpa")',
        ),
    ),
    _sign(
        _GPU_KINDS,
        r"(?i)(?:don't|do not|without|no) truncat|(?:different|variable|varying|various) (?:sequence )?lengths",
        "The longest sequence of a batch decides how much it needs.",
        Advice(
            "Limit the length, and batch samples of similar length:",
            "tokenizer(text, truncation=True, max_length=1024); TrainingArguments(group_by_length=True)",
        ),
    ),
    _sign(
        _GPU_KINDS,
        r"\bMIG[ -]?(\d+g\.\d+gb)",
        "The process has a slice of the GPU (MIG {0}), not all of it.",
        Advice("Ask for a larger slice or a whole GPU. See which there are:", "$ nvidia-smi -L"),
    ),
    _sign(
        _GPU_KINDS,
        r"(?i)\b(?:first time|worked once|(?:worked|ran) fine)\b[\s\S]{0,300}?\b(?:again|second time|re-?run|re-?ran)\b"
        r"[\s\S]{0,2000}?(?:ipython-input|Cell In ?\[)",
        "The model of the first run is probably still in the notebook's memory.",
        common.RESTART_KERNEL,
    ),
    _sign(
        _GPU_KINDS,
        r"default_restore_location|_cuda_deserialize",
        "A checkpoint is loaded straight to the GPU that saved it, by each process that loads it.",
        Advice("Load it to RAM:", 'torch.load(path, map_location="cpu")'),
        excludes_batches=True,
    ),
    _sign(
        _GPU_KINDS,
        r"data_parallel\.py|nn\.DataParallel\(",
        "DataParallel collects the outputs of all GPUs, and the loss, on the first one.",
        Advice("Use a process for each GPU (DistributedDataParallel):", "$ torchrun --nproc-per-node 4 train.py"),
        Advice("Or compute the loss inside of the model's forward, so that only losses are collected.", ""),
    ),
    _sign(
        _GPU_KINDS,
        r"torch_geometric|message_passing\.py",
        "Memory grows with the edges of the graphs in a batch.",
        Advice(
            "Train on sampled parts of a large graph:",
            "NeighborLoader(data, num_neighbors=[15, 10], batch_size=1024, input_nodes=data.train_mask)",
        ),
    ),
    _sign(
        _GPU_KINDS,
        r"\bfairseq\b",
        "fairseq fills batches up to a number of tokens.",
        Advice("Use fewer tokens per batch, and accumulate:", "--max-tokens 2048 --update-freq 2"),
    ),
    _sign(
        _GPU_KINDS,
        # Not `loss += aux_loss`, which adds the terms of one step.
        r"^\W{0,4}\w*(?:total|running|epoch|train|sum|avg|cum)\w* ?\+= ?loss\s*(?:$|#)|\.append\(loss\)",
        "The code adds up or collects losses: unless they are numbers, the graph of every step is kept.",
        Advice("Add numbers:", "total += loss.item()  # or loss.detach()"),
    ),
    _sign(
        FailureKind.OOM_KILL,
        r"--cache(?:-images)?(?!\S)(?! ?disk)|\bcache=['\"]?(?:True|ram)\b|Caching images \([^)\n]*(?:ram|RAM)",
        "The command keeps all images in RAM (--cache).",
        Advice(
            "Read the images from the disk instead: leave the option out, or cache there.",
            "--cache disk  # of Ultralytics: cache=disk",
        ),
    ),
    _sign(
        _HOST_KINDS,
        r"stable_baselines3|[Rr]eplay_?[Bb]uffer",
        "It is a replay buffer.",
        Advice(
            "Use a smaller replay buffer, or one that keeps each observation once:",
            "DQN(…, buffer_size=100_000, optimize_memory_usage=True)",
        ),
    ),
    _sign(
        frozenset({FailureKind.NOTEBOOK_DIED, FailureKind.OOM_KILL}),
        r"\bpd\.(?:concat|merge|read_(?:csv|parquet|json))\("
        r"|(?i:\bcsv (?:file )?(?:is|of|has|with) \d+ ?GB|\d+ ?GB csv)",
        "The data are read as whole files; pandas also copies tables that it joins.",
        common.CHUNKS,
    ),
    _sign(
        FailureKind.OOM_KILL,
        r"exited with code 137|Exited \(137\)",
        "Exit code 137 of a container is SIGKILL.",
        Advice(
            "Docker knows whether the container reached its limit (true) or not:",
            "$ docker inspect CONTAINER --format '{{.State.OOMKilled}} {{.HostConfig.Memory}}'",
        ),
    ),
    _sign(
        FailureKind.OOM_KILL,
        r"CONSTRAINT_MEMCG|[Mm]emory cgroup out of memory",
        "The limit of a container, job or service (cgroup) was reached; the machine may have RAM left.",
    ),
    _sign(
        frozenset({*_HOST_KINDS, FailureKind.NOTEBOOK_DIED, FailureKind.OOM_KILL}),
        r"np\.(?:array|stack|asarray)\(\[[^\n]*(?:imread|Image\.open|load_img|resize)[^\n]*/ ?255",
        "Divided by 255, the whole array becomes float64: eight times the bytes of the images.",
        Advice(
            "Keep the images as uint8, and scale each batch:",
            "x = np.array(images, dtype=np.uint8)  # then layers.Rescaling(1 / 255), or batch / 255",
        ),
        _READ_WHEN_NEEDED,
    ),
    _sign(
        frozenset({*_HOST_KINDS, FailureKind.NOTEBOOK_DIED, FailureKind.OOM_KILL}),
        r"np\.(?:array|stack|asarray)\(\[[^\n]*(?:imread|Image\.open|load_img)(?![^\n]*/ ?255)",
        "All images are in one array.",
        _READ_WHEN_NEEDED,
        Advice(
            "Or keep them as uint8, a quarter of float32, and scale each batch:", "np.array(images, dtype=np.uint8)"
        ),
    ),
    _sign(
        FailureKind.THREAD_LIMIT,
        r"fork rejected by pids controller",
        "The limit is that of the container or service (cgroup), not ulimit -u.",
        Advice("Raise its limit of processes (systemd: TasksMax=infinity):", "$ docker run --pids-limit=-1 …"),
    ),
    _sign(
        FailureKind.CRASH,
        r"^Current thread[^\n]*\n +File \"([^\"\n]+)\", line (\d+) in (\w+)[\s\S]{0,1500}?_worker_loop",
        "It crashed in a loader worker, in {2} at line {1} of {0}.",
        Advice(
            "Run it in the main process, and keep OpenCV from starting threads in workers:",
            "DataLoader(dataset, num_workers=0)  # and cv2.setNumThreads(0)",
        ),
        Advice("Find the sample:", "for index in range(len(dataset)): print(index); dataset[index]"),
        Advice("Update or pin the library that this line calls:", "$ pip install --upgrade PACKAGE"),
    ),
    _sign(
        FailureKind.CRASH,
        r"^Current thread[^\n]*\n +File \"([^\"\n]+)\", line (\d+) in (\w+)",
        "It crashed in {2}, at line {1} of {0}.",
        Advice("Run this line alone, with the same input.", ""),
        Advice("Update or pin the library that this line calls:", "$ pip install --upgrade PACKAGE"),
    ),
    _sign(
        FailureKind.ENOMEM,
        r"os\.fork\(\)|popen_fork",
        "A loader worker could not be forked: the kernel counts its copy of this process as memory.",
        Advice(
            "Load in this process, or hold less in it when the workers start:", "DataLoader(dataset, num_workers=0)"
        ),
    ),
    _sign(
        FailureKind.MEMORY_ERROR,
        r"popen_spawn_win32",
        "A loader worker that was started as a new process (spawn) could not receive its copy of the dataset.",
        Advice(
            "Load in the main process, or keep paths instead of data in the Dataset:",
            "DataLoader(dataset, num_workers=0)",
        ),
        resource=Resource.COMMIT,
    ),
)
# A row of nvidia-smi's processes: the PID, its type, its name, its memory.
_PROCESS_ROW = re.compile(r"^\|\s+\d+\s+(?:\S+\s+\S+\s+)?(\d+)\s+[CG+]{1,3}\s+\S.*?\s(\d+) ?MiB\s*\|", re.MULTILINE)
_USED_OF_TOTAL = re.compile(r"\|\s+(\d+) ?MiB ?/ ?(\d+) ?MiB\s+\|")
_NO_PROCESSES = "No running processes found"
_MIN_LISTED = GIB
_MIN_SHARE = 0.5  # of the card, held by nobody that is listed


def find_evidence(kind: FailureKind, text: str, situation: Situation) -> tuple[Evidence, ...]:
    """Return what a text around a failure shows about it, most important first."""
    return tuple(_evidence(kind, text, situation))


def _evidence(kind: FailureKind, text: str, situation: Situation) -> Iterator[Evidence]:
    if kind in _GPU_KINDS and "MiB" in text:
        yield from _processes(text, situation)
    is_known = False
    for sign in _SIGNS:
        if kind in sign.kinds and not (is_known and kind is FailureKind.CRASH) and (match := sign.pattern.search(text)):
            is_known = True
            detail = Detail(sign.sentence.format(*match.groups()), sign.advice, sign.excludes_batches)
            yield Evidence(detail, sign.resource)


def _processes(text: str, situation: Situation) -> Iterator[Evidence]:
    """Yield what a pasted table of nvidia-smi shows."""
    rows = {match[0]: (int(match[2]) * MIB, int(match[1])) for match in _PROCESS_ROW.finditer(text)}
    pids = Counter(pid for _, pid in rows.values())
    largest = max((row for row in rows.values() if pids[row[1]] == 1), default=None)  # one on several GPUs is this run
    if largest is not None and largest[0] >= _MIN_LISTED:
        size, pid = largest
        yield Evidence(
            Detail(f"nvidia-smi shows process {pid} with {format_size(size)} of the GPU.", (_stop(pid, situation),))
        )
    use = _USED_OF_TOTAL.search(text)
    if use is not None and _NO_PROCESSES in text and int(use[1]) >= _MIN_SHARE * int(use[2]):
        yield Evidence(
            Detail(
                f"nvidia-smi shows {format_size(int(use[1]) * MIB)} in use, but no process: it is in another "
                "container, or ended without returning its memory.",
                (
                    Advice(
                        "Find who has the GPU open, and stop it (or restart the machine):",
                        "$ sudo fuser -v /dev/nvidia*",
                    ),
                ),
            )
        )


def _stop(pid: int, situation: Situation) -> Advice:
    command = (
        f'$ tasklist /FI "PID eq {pid}"'
        if situation.system is System.WINDOWS
        else f"$ ps -o pid,user,etime,args -p {pid}"
    )
    return Advice("If that isn't this run, stop it (an older run, a notebook), or wait for it:", command)
