"""The situation of a failure, read from the text around it: who speaks, on which system, where, and at what time."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import TypeVar

from ._stated_batch import StatedBatch, read_batch


class Speaker(enum.Enum):
    """A library or program that people train with."""

    YOLOV5 = "yolov5"
    YOLOV7 = "yolov7"
    ULTRALYTICS = "ultralytics"
    NNUNET = "nnunet"
    MONAI = "monai"
    OPENMMLAB = "openmmlab"
    VLLM = "vllm"
    SGLANG = "sglang"
    TGI = "text-generation-inference"
    DARKNET = "darknet"
    DIFFUSION_TRAINING = "diffusers training"
    COMFYUI = "comfyui"
    DIFFUSERS = "diffusers"
    LLAMA_CPP = "llama.cpp"
    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    CATBOOST = "catboost"
    LIGHTGBM = "lightgbm"
    RAPIDS = "rapids"
    PADDLE = "paddle"
    MXNET = "mxnet"
    JAX_TPU = "jax on tpu"
    JAX = "jax"
    TENSORFLOW_1 = "tensorflow 1"
    TENSORFLOW = "tensorflow"
    FAISS = "faiss"
    CUPY = "cupy"
    ONNXRUNTIME = "onnxruntime"
    TENSORRT = "tensorrt"
    MLX = "mlx"
    R = "r"
    PYTORCH = "pytorch"
    RAY = "ray"
    JOBLIB = "joblib"
    OPENCV = "opencv"
    SPARK = "spark"
    POLARS = "polars"
    PANDAS = "pandas"
    NUMPY = "numpy"
    UNKNOWN = ""


class System(enum.Enum):
    """Operating system of the run."""

    LINUX = "linux"
    WINDOWS = "windows"
    WSL = "wsl"
    MACOS = "macos"
    UNKNOWN = ""


class Place(enum.Enum):
    """A scheduler, container, service or log that the text comes from."""

    SLURM = "slurm"
    PBS = "pbs"
    LSF = "lsf"
    GRID_ENGINE = "grid engine"
    HTCONDOR = "htcondor"
    KUBERNETES = "kubernetes"
    DOCKER = "docker"
    COLAB = "colab"
    KAGGLE = "kaggle"
    CLOUD_JOB = "cloud job"
    JUPYTER = "jupyter"
    KERNEL_LOG = "kernel"
    SYSTEMD = "systemd"
    RAY = "ray"


# The message itself is the word of the kernel or a scheduler, so there is nothing to look up.
KERNEL_PLACES = frozenset(
    {Place.KERNEL_LOG, Place.SYSTEMD, Place.SLURM, Place.KUBERNETES, Place.PBS, Place.LSF, Place.RAY}
)
QUEUES = frozenset({Place.SLURM, Place.PBS, Place.LSF, Place.GRID_ENGINE, Place.HTCONDOR})
NOTEBOOKS = frozenset({Place.JUPYTER, Place.COLAB, Place.KAGGLE})


class Phase(enum.Enum):
    """What the program was doing."""

    MOVING_WEIGHTS = "moving the weights to the GPU"
    CREATING_STATES = "creating optimizer states"
    UPDATING = "updating"
    SAVING = "saving"
    LOADING = "loading"
    EVALUATING = "evaluating"
    GENERATING = "generating"
    PREPROCESSING = "preprocessing"
    UNKNOWN = ""


class Measure(enum.Enum):
    """A way to save memory that the text shows in use."""

    ADAPTERS = "adapters"
    HALF_PRECISION = "half precision"
    CHECKPOINTING = "checkpointing"


@dataclass(frozen=True)
class Situation:
    """Who reports a failure, on which system, in which places, and what the program was doing.

    Attributes:
        speaker: The library or program.
        system: The operating system.
        places: Schedulers, containers, services and logs.
        phase: What the program was doing.
        is_phase_certain: True if the traceback shows the phase, and not only a line before it.
        is_old_torch: True if the message has the form of torch before 2.1.
        is_ancient_torch: True if it has the form of torch before 1.5.
        batch: The batch size that the text states.
        measures: What the program does already to save memory.
    """

    speaker: Speaker = Speaker.UNKNOWN
    system: System = System.UNKNOWN
    places: frozenset[Place] = frozenset()
    phase: Phase = Phase.UNKNOWN
    is_phase_certain: bool = False
    is_old_torch: bool = False
    is_ancient_torch: bool = False
    batch: StatedBatch = field(default_factory=StatedBatch)
    measures: frozenset[Measure] = frozenset()

    @property
    def has_expandable_segments(self) -> bool:
        """True unless the system or the version of torch is known not to support expandable segments."""
        return not self.is_old_torch and self.system not in {System.WINDOWS, System.WSL, System.MACOS}

    @property
    def has_shell_tools(self) -> bool:
        """True unless the system has no ps, dmesg and the like."""
        return self.system is not System.WINDOWS


_Key = TypeVar("_Key", bound=enum.Enum)
_Table = tuple[tuple[_Key, re.Pattern[str]], ...]


def _patterns(table: dict[_Key, str | tuple[str, ...]]) -> _Table[_Key]:
    joined = ((key, text if isinstance(text, str) else "|".join(text)) for key, text in table.items())
    return tuple((key, re.compile(pattern, re.MULTILINE)) for key, pattern in joined)


# Most specific first: a YOLOv5 run also shows torch, a vLLM server also shows transformers.
_SPEAKERS = _patterns(
    {
        Speaker.YOLOV7: r"\byolov[67]\b|YOLOv[67]\b",
        Speaker.YOLOV5: r"\byolov5|YOLOv5\b|train: weights=|^train\.py: weights=|segment/train: weights=",
        Speaker.ULTRALYTICS: (
            r"[Uu]ltralytics",
            r"\byolo (?:task=\S+ |detect |segment |classify |pose )?(?:mode=)?(?:train|val|predict)\b",
            r"\bYOLO\(|yolo(?:v8|v9|v10|11|12)\w?\.(?:pt|yaml)|engine/trainer:",
            r"box_loss +cls_loss +dfl_loss|TaskAlignedAssigner",
        ),
        Speaker.NNUNET: r"nnU-?[Nn]et|nnunetv?2?\b|batchgenerators|nondet_multi_threaded_augmenter",
        Speaker.MONAI: r"\bmonai\b|\bMONAI\b|sliding_window_inference",
        Speaker.OPENMMLAB: r"\bmm(?:det|seg|cv|engine|pose|detection|segmentation|pretrain|det3d)\b",
        Speaker.SGLANG: r"\bsglang\b|SGLang|mem-fraction-static",
        Speaker.TGI: r"text[-_]generation[-_](?:launcher|inference|router|server)|prefill tokens",
        Speaker.VLLM: r"\bvllm\b|\bvLLM\b|EngineCore|desired GPU memory utilization|KV cache|gpu_memory_utilization",
        Speaker.DARKNET: (
            r"\bdarknet\b|subdivisions|cuda_make_array|check_error: Assertion|\./src/cuda\.c",
            r"mini_batch = ",
        ),
        Speaker.DIFFUSION_TRAINING: (
            r"\bkohya|\bsd-scripts\b|train_(?:network|db|dreambooth|controlnet|text_to_image|textual)\w*\.py",
            r"(?:[Dd]iffusers|stable-diffusion)[^\0]*total optimization steps",
            r"total optimization steps[^\0]*[Dd]iffusers",
        ),
        Speaker.COMFYUI: r"ComfyUI|comfy/|^got prompt$|Prompt executed in|unloading all loaded models|KSampler",
        Speaker.DIFFUSERS: r"[Dd]iffusers\b|stable-diffusion|webui|[Ss]tableDiffusion",
        Speaker.LLAMA_CPP: r"ggml_|llama_(?:model|new|init|kv)|llama\.cpp|llama_cpp|\bollama\b",
        Speaker.MEGATRON: r"[Mm]egatron|consumed samples: |recompute-granularity",
        Speaker.DEEPSPEED: r"[Dd]eep[Ss]peed|launch\.py:\d+:sigkill_handler|\bzero_(?:stage|optimization)|stage3\.py",
        Speaker.HUGGINGFACE: (
            r"transformers/|\btransformers\.|TrainingArguments|\bTrainer\.train",
            r"accelerate (?:launch|config)|accelerate/|\bpeft\b|\btrl\b|run_clm|run_glue|huggingface",
            r"SFTTrainer|axolotl|unsloth|llamafactory|from_pretrained|Loading checkpoint shards|meta-llama/",
        ),
        Speaker.LIGHTNING: (
            r"pytorch_lightning|lightning_fabric|lightning[/.]pytorch|lightning/|LightningModule",
            r"Lightning\b|^Sanity Checking(?: DataLoader)?\b|^ +\| Name +\| Type +\| Params",
        ),
        Speaker.CATBOOST: r"catboost|CatBoost|NCudaLib",
        Speaker.LIGHTGBM: r"lightgbm|LightGBM",
        Speaker.RAPIDS: r"\bxgboost|XGBoost|\brmm\b|\bcudf\b|\bcuml\b",
        Speaker.PADDLE: r"[Pp]addle|FLAGS_fraction_of_gpu|ResourceExhaustedError: \s*\n*\s*Out of memory error on GPU",
        Speaker.MXNET: r"\bmxnet|MXNet|gluon",
        Speaker.JAX_TPU: r"XLA:TPU|memory space hbm|\bhbm capacity\b|libtpu",
        Speaker.JAX: r"\bjax\b|jaxlib|\bflax\b|XlaRuntimeError|pjrt|PjRt|XLA_PYTHON",
        Speaker.TENSORFLOW_1: (
            r"tensorflow/python/client/session\.py|\bsess(?:ion)?\.run\(|tf\.(?:Session|placeholder|ConfigProto)\(",
            r"tensorflow(?:[-_]gpu)?[ =-]+v?1\.\d|^201[5-8]-\d\d-\d\d \S+: [IWEF] tensorflow/",
        ),
        Speaker.TENSORFLOW: (
            r"tensorflow|\bTensorFlow|\bkeras\b|\btf\.|bfc_allocator|OOM when allocating tensor",
            r"ResourceExhaustedError|GPU_\d_bfc|_bfc\)|\[=+>?\.*\] - |\dms/step",
        ),
        Speaker.FAISS: r"\bfaiss\b|swigfaiss|StandardGpuResources",
        Speaker.CUPY: r"\bcupy\b",
        Speaker.ONNXRUNTIME: r"onnxruntime|\bORT\b|BFCArena",
        Speaker.TENSORRT: r"\[TRT\]|TensorRT|\btrtexec\b|IBuilderConfig|[Ss]kipping tactic",
        Speaker.MLX: r"\bmlx\b|mlx_lm|mlx\.core|\[METAL\]|\[metal::",
        Speaker.R: r"/lib/R/|R-\d\.\d|\bRscript\b|\bluz\b|\bError in [\w.]*\(|call_c_function|cannot allocate vector",
        Speaker.PYTORCH: (
            r"\btorch\b|PyTorch|pytorch|c10::|DefaultCPUAllocator|DataLoader worker|THCudaCheck",
            r"cuda runtime error|CUDA out of memory|\bTHC\b|aten/",
        ),
        Speaker.RAY: r"\bray::|\bray\.|raylet|Ray ",
        Speaker.JOBLIB: r"joblib|loky|TerminatedWorkerError|n_jobs|sklearn|scikit-learn",
        Speaker.OPENCV: r"OpenCV\(|cv2\.|cv::|OutOfMemoryError in function",
        Speaker.SPARK: r"\bspark\b|pyspark|Py4JJavaError|org\.apache\.spark|YarnScheduler",
        Speaker.POLARS: r"\bpolars\b|\bpl\.(?:read|scan)_\w+\(",
        Speaker.PANDAS: r"\bpandas\b|\bpd\.|read_csv|DataFrame",
        Speaker.NUMPY: r"\bnumpy\b|_ArrayMemoryError|for an array with shape|\bnp\.",
    }
)
_SYSTEMS = _patterns(
    {
        System.WSL: r"\bWSL2?\b|microsoft-standard|/mnt/[a-z]/|/usr/lib/wsl",
        System.WINDOWS: (
            r"\b[A-Za-z]:\\\\?\w|WinError|\bWindows\b|\.exe\b|\.dll\b|0xC0000|32212\d{5}|PowerShell",
            r"CategoryInfo|PS [A-Z]:|\\(?:[Ll]ib|site-packages|Scripts|Users)\\",
        ),
        System.MACOS: r"/Users/|\bMPS\b|\bmacOS\b|[Dd]arwin|/opt/homebrew|Metal\b|arm64-apple",
        System.LINUX: (
            r"/home/|/usr/(?:local/)?lib|/root/|/opt/|/dev/shm|/mnt/|/data/|/workspace|/scratch",
            r"slurmstepd|\.so\b|/tmp/|oom-kill|dmesg",
        ),
    }
)
_PLACES = _patterns(
    {
        Place.SLURM: r"slurm|SLURM|Slurm|\bsrun\b|\bsbatch\b|\bsacct\b|\bseff\b|StepId=|OUT_OF_ME",
        Place.PBS: r"\bPBS\b|\bqsub\b(?![^\n]*(?:h_vmem|-pe ))|=>> PBS",
        Place.LSF: r"TERM_MEMLIMIT|\bbsub\b|\bLSF\b|LSBATCH",
        Place.GRID_ENGINE: r"h_vmem|[Mm]ax ?vmem|\bqrsh\b|\bSGE\b|[Gg]rid ?[Ee]ngine",
        Place.HTCONDOR: r"[Cc]ondor\b|request_memory",
        Place.KUBERNETES: (
            r"kubectl|Reason:\s+OOMKilled|[Kk]ubernetes|\bkubelet\b|\bk8s\b|\bPod\b|\bpod/|Evicted",
            r"CrashLoopBackOff|emptyDir|\bcgroup.*kubepods|kubepods|namespace/",
        ),
        Place.DOCKER: r"\bdocker\b|\bDocker|\bcontainerd?\b|--shm-size|/docker/|\bpodman\b|OOMKilled",
        Place.COLAB: r"\b[Cc]olab\b|/content/|using all available RAM",
        Place.KAGGLE: (
            r"/kaggle/(?:working|input|temp|lib)|tried to allocate more memory than is available|kaggle\.com/code",
            r"[Kk]aggle(?:'s)? (?:notebook|kernel|session|GPU|TPU|P100|T4)",
            r"\b(?:[Oo]n|[Ii]n|[Uu]sing|[Aa]uf|[Ee]n|[Ss]ur|在) ?(?:a )?[Kk]aggle\b(?! (?:competition|challenge|data))",
        ),
        Place.CLOUD_JOB: r"[Ss]age[Mm]aker|[Vv]ertex ?AI|ml_job|replica workerpool|[Aa]zure ?ML",
        Place.JUPYTER: (
            r"[Jj]upyter|ipykernel|<ipython-input|ipython-input|\.ipynb",
            r"[Kk]ernel (?:died|Restarting|crashed)|appears to have died|KernelRestarter|Cell In\s?\[",
            r"^-+> ?\d+ ",
        ),
        Place.KERNEL_LOG: (
            r"oom-kill:constraint|oom_reaper|invoked oom-killer|Out of memory: Kill",
            r"Memory cgroup out of memory|total-vm:|^\[\s*\d+\.\d{6}\]",
        ),
        Place.SYSTEMD: r"systemd|oomd\b|\bearlyoom\b|\bnohang\b",
        Place.RAY: (
            r"\bray::|raylet|ray\.exceptions|\bray\b.*(?:worker|task|node)",
            r"OutOfMemoryError: Task was killed|memory usage threshold",
        ),
    }
)
_PHASES = _patterns(
    {
        Phase.MOVING_WEIGHTS: r"in _apply\b|return self\._apply\(|param_applied = fn\(|^\s+pipe\w*\.to\(",
        # In the first step; AdamW's states are as large as two copies of the weights.
        Phase.CREATING_STATES: r"in _init_group\b|exp_avg(?:_sq)?\"\] = |initialize_optimizer_states",
        Phase.UPDATING: r"in _multi_tensor_\w+|in _single_tensor_\w+|torch\._foreach_\w+\(",
        Phase.SAVING: (
            r"torch\.save\(|in save\b|_save\(|save_checkpoint|save_model|save_pretrained|full_state_dict",
            r"FullStateDict|_unshard_params|summon_full_params|consolidat",
            r"[Ss]aving (?:model|checkpoint|the)|get_model_state_dict",
        ),
        Phase.LOADING: (
            r"torch\.load\(|in load\b|_load_pretrained_model|from_pretrained\(|load_state_dict\(",
            r"load_checkpoint|load_file\(|Loading checkpoint shards|in _?load_model|in _legacy_load",
            r"restore_location",
        ),
        Phase.GENERATING: (
            r"\.generate\(|generation/utils\.py|in generate\b|pipeline\(|in inference|infer(?:ence)?\.py",
            r"sliding_window|predict\.py|in predict|[Pp]redicting:|inference_mode",
        ),
        Phase.EVALUATING: (
            r"evaluation_loop|evaluate\(|in evaluate|validation_step|in validat|in evaluation|val_loop",
            r"prediction_step|eval\.py|val\.py|[Vv]alidating|Validation:|nested_concat|preds_host|validate\.py",
        ),
        Phase.PREPROCESSING: r"preprocess|plan_and_preprocess|build_vocab|\.map\(|tokeniz",
    }
)
_MEASURES = _patterns(
    {
        Measure.ADAPTERS: r"(?i)\bq?lora\b|get_peft_model",
        Measure.HALF_PRECISION: (
            r"autocast_mode\.py|\bautocast\(|\bbf16(?!\W{0,12}[Ff]alse)|bfloat16|\bfp16\W{0,3}[Tt]rue|16-mixed"
        ),
        Measure.CHECKPOINTING: r"gradient_checkpointing(?!\W{0,3}[Ff]alse)|use_reentrant|torch/utils/checkpoint\.py",
    }
)
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r"^\W{0,4}(?:\[rank\d+\]: ?)? *File \"", re.MULTILINE)
_MAX_FRAMES = 4000  # characters before a message that may be the end of a traceback
# Since 2.1, torch writes "GPU 0 has a total capacity of".
_OLD_TORCH = re.compile(r"\d [KMGT]iB total capacity; |THCStorage|THCudaCheck|cuda runtime error \(2\)")
# Until 1.4, torch wrote "cached" for "reserved in total by PyTorch".
_ANCIENT_TORCH = re.compile(r"[KMG]iB cached\)|THCStorage|THCudaCheck|cuda runtime error \(2\)")
# What runs beside the failing program, in the words of its user.
_BYSTANDER = re.compile(
    r"(?i)\b(?:some(?:one|body) else|another (?:user|person|team)"
    r"|(?:an?|my|the) (?:colleague|coworker|neighbou?r|teammate))\b"
)
_CLAUSE_END = re.compile(r"(?<=[.,;\n])")
# Speakers that run on torch: only these can raise torch's own errors.
TORCH_SPEAKERS = frozenset(
    {
        Speaker.YOLOV5,
        Speaker.ULTRALYTICS,
        Speaker.YOLOV7,
        Speaker.NNUNET,
        Speaker.MONAI,
        Speaker.OPENMMLAB,
        Speaker.VLLM,
        Speaker.SGLANG,
        Speaker.TGI,
        Speaker.DIFFUSION_TRAINING,
        Speaker.COMFYUI,
        Speaker.DIFFUSERS,
        Speaker.MEGATRON,
        Speaker.DEEPSPEED,
        Speaker.HUGGINGFACE,
        Speaker.LIGHTNING,
        Speaker.R,
        Speaker.PYTORCH,
        Speaker.RAY,
    }
)
_LIBRARIES = {Speaker.OPENCV, Speaker.NUMPY}
_PROGRAMS = {Speaker.YOLOV5, Speaker.YOLOV7, Speaker.ULTRALYTICS, Speaker.NNUNET}


def read_situation(message: str, surroundings: str) -> Situation:
    """Read the situation from a message and the text around it; what the message itself says counts first."""
    wide = f"{message}\n{surroundings}"
    places = frozenset(place for place, pattern in _PLACES if pattern.search(wide))
    system = _first(_SYSTEMS, wide, System.UNKNOWN)
    if Place.COLAB in places or Place.KAGGLE in places:
        system = System.LINUX
    shown = _first(_PHASES, _traceback(surroundings), Phase.UNKNOWN)
    is_certain = shown is not Phase.UNKNOWN
    phase = shown if is_certain else _first(_PHASES, wide, Phase.UNKNOWN)
    return Situation(
        _speaker(_without_bystanders(message), _without_bystanders(wide)),
        system,
        places,
        phase,
        is_certain,
        _OLD_TORCH.search(message) is not None,
        _ANCIENT_TORCH.search(message) is not None,
        read_batch(wide),
        frozenset(measure for measure, pattern in _MEASURES if pattern.search(wide)),
    )


def _without_bystanders(text: str) -> str:
    """Return a text without the clauses about programs of other people."""
    if _BYSTANDER.search(text) is None:
        return text
    return "".join(clause for clause in _CLAUSE_END.split(text) if _BYSTANDER.search(clause) is None)


def _traceback(surroundings: str) -> str:
    """Return the traceback that ends right before a message, also without its first lines; empty if there is none."""
    start = surroundings.rfind(_TRACEBACK)
    if start >= 0:
        return surroundings[start:]
    frame = _FRAME.search(surroundings, max(len(surroundings) - _MAX_FRAMES, 0))
    return surroundings[frame.start() :] if frame else ""


def _speaker(message: str, wide: str) -> Speaker:
    """Return the most specific speaker; a message that names a framework excludes other frameworks."""
    named = _first(_SPEAKERS, message, Speaker.UNKNOWN)
    if named in _LIBRARIES:  # of programs that have settings of their own for it
        named = next((key for key, pattern in _SPEAKERS if key in _PROGRAMS and pattern.search(wide)), named)
    if named in TORCH_SPEAKERS:
        return next((key for key, pattern in _SPEAKERS if key in TORCH_SPEAKERS and pattern.search(wide)), named)
    return named if named is not Speaker.UNKNOWN else _first(_SPEAKERS, wide, Speaker.UNKNOWN)


def _first(table: _Table[_Key], text: str, default: _Key) -> _Key:
    return next((key for key, pattern in table if pattern.search(text)), default)
