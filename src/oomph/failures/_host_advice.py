"""Advice about RAM and shared memory for the place that a run is in, and the library that it uses."""

from __future__ import annotations

import math

from ..units import GIB
from . import _common_advice as common
from ._kinds import Advice
from ._situation import Phase, Place, Situation, Speaker, System

_DEFAULT_GIB = 64
_MORE_MEMORY: tuple[tuple[Place, Advice], ...] = (
    (
        Place.RAY,
        Advice(
            "Run fewer tasks at once, or let each reserve its memory:", "@ray.remote(num_cpus=4, memory=8 * 1024**3)"
        ),
    ),
    (Place.SLURM, Advice("Request more memory:", "#SBATCH --mem=SIZEG")),
    (Place.PBS, Advice("Request more memory:", "#PBS -l select=1:ncpus=8:mem=SIZEgb")),
    (Place.LSF, Advice("Request more memory:", "#BSUB -M SIZEGB -R 'rusage[mem=SIZEGB]'")),
    (Place.GRID_ENGINE, Advice("Request more memory:", "#$ -l h_vmem=SIZEG")),
    (Place.HTCONDOR, Advice("Request more memory in the submit file:", "request_memory = SIZEGB")),
    (
        Place.KUBERNETES,
        Advice(
            "Raise the memory request and limit of the container:",
            "resources: {requests: {memory: SIZEGi}, limits: {memory: SIZEGi}}",
        ),
    ),
    (
        Place.COLAB,
        Advice("Use a runtime with more RAM: Runtime > Change runtime type > High-RAM. See what is free:", "!free -h"),
    ),
    (
        Place.KAGGLE,
        Advice(
            "Kaggle's RAM is fixed. Free what isn't needed, and see what is left:", "del data; gc.collect()  # !free -h"
        ),
    ),
    (
        Place.CLOUD_JOB,
        Advice(
            "Choose a machine type with more RAM for the job (SageMaker, Vertex AI):",
            'instance_type="ml.r5.4xlarge"  # machine_type="n1-highmem-16"',
        ),
    ),
    (Place.DOCKER, Advice("Raise the memory limit of the container:", "$ docker run --memory=SIZEg …")),
)
_MORE_WSL_MEMORY = Advice(
    "Give WSL more RAM and swap in C:\\Users\\NAME\\.wslconfig, then run wsl --shutdown:",
    "[wsl2]\nmemory=24GB\nswap=32GB",
)
_UNPINNED_OFFLOAD = Advice(
    "Don't pin what is offloaded:",
    '"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": false}}',
)
_SWAP = Advice(
    "Add swap as a reserve, if you may:",
    "$ sudo fallocate -l 32G /swapfile && sudo mkswap /swapfile && sudo swapon /swapfile",
)
_BUILD = Advice(
    "Compile with fewer jobs at once: each needs gigabytes of RAM.", "$ MAX_JOBS=2 pip install --no-cache-dir PACKAGE"
)

_BY_SPEAKER: dict[Speaker, tuple[Advice, ...]] = {
    Speaker.NNUNET: (
        Advice(
            "Use fewer background workers, each of which holds volumes in RAM:", "$ nnUNet_n_proc_DA=4 nnUNetv2_train …"
        ),
        Advice(
            "In preprocessing and prediction, use fewer processes:",
            "$ nnUNetv2_plan_and_preprocess … -np 2; nnUNetv2_predict … -npp 1 -nps 1",
        ),
    ),
    Speaker.MONAI: (
        Advice(
            "Cache fewer volumes in RAM, or keep them on disk:", "PersistentDataset(files, transform, cache_dir=PATH)"
        ),
        common.FEWER_WORKERS,
    ),
    Speaker.SPARK: (
        Advice(
            "Keep the result in the cluster, or collect only a part of it:",
            "df.write.parquet(PATH)  # or df.select(columns).limit(100_000).toPandas()",
        ),
        Advice(
            "Give the driver and the executors a larger heap, when they start:",
            "$ spark-submit --driver-memory 16g --executor-memory 16g …",
        ),
    ),
    Speaker.POLARS: (
        Advice(
            "Scan the files, and collect in streaming mode:", 'pl.scan_csv(PATH).filter(…).collect(engine="streaming")'
        ),
        Advice(
            "Check for keys that occur several times on both sides of a join:",
            'left.join(right, on="key", validate="m:1")',
        ),
    ),
    Speaker.FAISS: (
        Advice(
            "Add vectors in batches, to an index that compresses them:",
            'index = faiss.index_factory(d, "IVF4096,PQ64")',
        ),
    ),
    Speaker.LLAMA_CPP: (
        Advice("Use a smaller model or quantization (Q4_K_M):", "$ ls *Q4_K_M*.gguf"),
        Advice("Use a shorter context, whose KV cache is smaller:", "$ llama-server -m MODEL.gguf -c 4096"),
    ),
    Speaker.MEGATRON: (
        Advice("Use fewer data workers, and map the dataset from files:", "--num-workers 1 --mmap-bin-files"),
        common.WATCH,
    ),
    Speaker.JOBLIB: (
        Advice("Use fewer processes: each has its own copy of the data.", "Parallel(n_jobs=2, pre_dispatch=2)"),
        Advice("Share large arrays with the workers as files:", 'Parallel(n_jobs=2, max_nbytes="10M", mmap_mode="r")'),
    ),
    Speaker.DEEPSPEED: (
        Advice(
            "Every rank may load the whole model into RAM. Create the configuration first, so that ZeRO-3 shards the "
            "weights as they are loaded:",
            "config = HfDeepSpeedConfig(CONFIG)  # or TrainingArguments(deepspeed=…), before from_pretrained",
        ),
        Advice(
            "Offload to a disk instead of RAM:",
            '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}',
        ),
    ),
    Speaker.HUGGINGFACE: (
        Advice(
            "Load weights without a second copy in RAM:",
            'from_pretrained(NAME, torch_dtype="auto", low_cpu_mem_usage=True)',
        ),
        Advice(
            "Process datasets with fewer processes and smaller write batches:",
            "dataset.map(function, num_proc=2, writer_batch_size=100)",
        ),
    ),
    Speaker.TENSORFLOW: (
        Advice(
            "Feed batches from files instead of one array in RAM:",
            "tf.data.Dataset.from_generator(read_samples, output_signature=spec).batch(16)",
        ),
        Advice(
            "Use smaller batches, and a smaller shuffle buffer and prefetch:",
            "dataset.shuffle(1000).batch(16).prefetch(2)",
        ),
    ),
    Speaker.PADDLE: (
        Advice(
            "Use smaller batches and fewer loader workers: the host's RAM ran out.",
            "DataLoader(dataset, batch_size=8, num_workers=0)",
        ),
    ),
    Speaker.MLX: (
        Advice("Use smaller batches, and recompute activations:", "$ mlx_lm.lora --batch-size 1 --grad-checkpoint …"),
        Advice("Close other programs: the GPU uses the same RAM. See which ones hold it:", "$ top -o mem"),
    ),
    Speaker.R: (
        Advice("Release what isn't used any more, and see what is large:", "rm(x); gc(); lobstr::obj_size(y)"),
        Advice("Read only what is needed:", 'data.table::fread("data.csv", select = columns)'),
    ),
    Speaker.PANDAS: (
        common.CHUNKS,
        Advice("Use smaller dtypes:", 'pd.read_csv("data.csv", dtype="float32", usecols=COLUMNS)'),
    ),
    Speaker.OPENCV: (
        Advice("Decode images at a smaller size:", "cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_2)"),
        common.FEWER_WORKERS,
    ),
    Speaker.ULTRALYTICS: (
        Advice(
            "Don't cache images in RAM, and use fewer workers:",
            "$ yolo train data=data.yaml cache=False workers=2 batch=8",
        ),
    ),
    Speaker.YOLOV5: (
        Advice(
            "Don't cache images in RAM (no --cache), and use fewer workers:",
            "$ python train.py --workers 2 --batch-size 8",
        ),
    ),
    Speaker.RAY: (
        Advice(
            "Run fewer tasks at once, or let each reserve its memory:", "@ray.remote(num_cpus=4, memory=8 * 1024**3)"
        ),
        Advice("Change when Ray kills (0.95 of RAM by default):", "$ RAY_memory_usage_threshold=0.98 ray start --head"),
    ),
    Speaker.NUMPY: (
        Advice("Use a smaller dtype, or a sparse matrix if most values are zero:", 'np.zeros(shape, dtype="float32")'),
        Advice("Work on parts of the array, mapped from a file:", 'x = np.load("data.npy", mmap_mode="r")'),
    ),
}
_STREAMING = Advice(
    "Read, process and write the data in parts, instead of all of it in RAM:",
    "for line in open(path): …  # or datasets.load_dataset(…, streaming=True)",
)
_SAVING = Advice(
    "Gather the weights on one rank only, or save them sharded:",
    "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))",
)


def more_memory(situation: Situation, limit: float | None) -> tuple[Advice, ...]:
    """Return how to get more RAM in the places that the text names: half more than the limit that was too small."""
    size = _DEFAULT_GIB if limit is None else max(math.ceil(limit * 1.5 / GIB), 1)
    advice = tuple(
        Advice(advice.text, advice.command.replace("SIZE", str(size)))
        for place, advice in _MORE_MEMORY
        if place in situation.places
    )
    if situation.system is System.WSL:
        return (_MORE_WSL_MEMORY, *advice)
    if situation.system is System.WINDOWS:
        return (common.PAGE_FILE, *advice)
    return advice[:1]


_MORE_TIME: tuple[tuple[Place, str], ...] = (
    (Place.PBS, "#PBS -l walltime=72:00:00"),
    (Place.LSF, "#BSUB -W 72:00"),
    (Place.GRID_ENGINE, "#$ -l h_rt=72:00:00"),
    (Place.SLURM, "#SBATCH --time=24:00:00"),
)


def time_advice(situation: Situation) -> tuple[Advice, ...]:
    """Return how to request more time of the scheduler that the text names; empty if it names none."""
    commands = (command for place, command in _MORE_TIME if place in situation.places)
    return tuple(Advice("Request more time, and resume from the last checkpoint:", command) for command in commands)[:1]


def less_ram(situation: Situation) -> tuple[Advice, ...]:
    """Return how the users of a library make it need less RAM, best first; empty if it is unknown."""
    advice = _BY_SPEAKER.get(situation.speaker, ())
    if situation.phase is Phase.SAVING:
        advice = (_SAVING, *advice)
    if situation.phase is Phase.PREPROCESSING:
        advice = (*advice, _STREAMING)
    return advice


def compile_advice() -> Advice:
    """Return advice for a compiler that was killed."""
    return _BUILD


def swap_advice(situation: Situation) -> tuple[Advice, ...]:
    """Return advice to add swap, where that is possible."""
    hosted = {
        Place.COLAB,
        Place.KAGGLE,
        Place.CLOUD_JOB,
        Place.SLURM,
        Place.KUBERNETES,
        Place.DOCKER,
        Place.PBS,
        Place.LSF,
    }
    return () if situation.places & hosted or not situation.has_shell_tools else (_SWAP,)


def pinned_advice(situation: Situation) -> tuple[Advice, ...]:
    """Return how to pin less with a library, and more on a system."""
    advice = (_UNPINNED_OFFLOAD,) if situation.speaker is Speaker.DEEPSPEED else ()
    return (*advice, _MORE_WSL_MEMORY) if situation.system is System.WSL else advice


def shared_memory_advice(situation: Situation) -> tuple[Advice, ...]:
    """Return how to get more shared memory, and how to need less."""
    if Place.KUBERNETES in situation.places:
        return (common.KUBERNETES_SHM, common.LESS_SHM)
    if Place.SLURM in situation.places:
        remount = Advice(
            "Ask for a node or a container with more shared memory, and see what is in use:",
            "$ df -h /dev/shm; ls -la /dev/shm",
        )
        return (remount, common.LESS_SHM)
    return (common.LARGER_SHM, common.LESS_SHM)
