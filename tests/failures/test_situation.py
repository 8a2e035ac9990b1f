from __future__ import annotations

import pytest

from oomph.failures import read_log
from oomph.failures._situation import Phase, Place, Speaker, System, read_situation

CUDA = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity)"

METAL = (
    "mlx_lm\n[METAL] Command buffer execution failed: Insufficient Memory "
    "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
)


def commands(text: str) -> str:
    """The commands of the advice for the first failure in a text."""
    return "\n".join(advice.command for advice in read_log(text)[0].advice)


@pytest.mark.parametrize(
    ("before", "speaker", "command"),
    [
        ("train: weights=yolov5s.pt, cfg=, data=coco128.yaml, epochs=300", Speaker.YOLOV5, "train.py --batch-size 8"),
        ("Ultralytics 8.3.40 Python-3.10 torch-2.5.1 CUDA:0 (T4, 15102MiB)", Speaker.ULTRALYTICS, "yolo train"),
        ('File "/opt/venv/transformers/trainer.py", line 2052', Speaker.HUGGINGFACE, "per_device_train_batch_size=4"),
        ('File "/opt/lightning_fabric/strategies/ddp.py"', Speaker.LIGHTNING, "accumulate_grad_batches=4"),
        ("[INFO] [runner.py:570:main] deepspeed_config.json", Speaker.DEEPSPEED, "train_micro_batch_size_per_gpu"),
        ("INFO 06-01 vllm/worker/worker.py:173", Speaker.VLLM, "--max-model-len"),
        ("nnUNetv2_train 27 3d_fullres 0", Speaker.NNUNET, "nnUNetv2"),
        ("got prompt\nComfyUI 0.3.10", Speaker.COMFYUI, "--lowvram"),
        ("stable-diffusion-webui/modules/processing.py", Speaker.DIFFUSERS, "enable_model_cpu_offload"),
        ("python train.py --cfg cfg/training/yolov7.yaml", Speaker.YOLOV7, "--img 480"),
        ("sliding_window_inference(x, (96, 96, 96), 4, model)", Speaker.MONAI, 'device="cpu"'),
        ("/root/mmdetection/mmdet/core/bbox/assigners/max_iou_assigner.py", Speaker.OPENMMLAB, "gpu_assign_thr"),
        ("iteration 10/ 50000 | consumed samples: 5120", Speaker.MEGATRON, "--micro-batch-size 1"),
        ("accelerate launch train_text_to_image_lora.py", Speaker.DIFFUSION_TRAINING, "--gradient_checkpointing"),
        ('File "train.py", line 3, in <module>', Speaker.PYTORCH, "oomph.guard"),
    ],
)
def test_advice_is_in_the_words_of_the_speaker(before: str, speaker: Speaker, command: str) -> None:
    assert read_situation(CUDA, before).speaker is speaker
    assert command in commands(f"{before}\n{CUDA}")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (
            "tensorflow: ResourceExhaustedError: OOM when allocating tensor with shape[9,9] and type float",
            "set_memory_growth",
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes",
            "XLA_PYTHON_CLIENT",
        ),
        ("./darknet detector train\n CUDA Error: out of memory", "subdivisions="),
        ("mxnet.base.MXNetError: cudaMalloc retry failed: out of memory", "MXNET_GPU_MEM_POOL_TYPE"),
        ("paddle: (ResourceExhausted) Out of memory error on GPU 0. ", "FLAGS_"),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.",
            "jax.checkpoint",
        ),
        ("catboost/cuda/memory_pool.h:303: Error: Out of memory. what: NCudaLib::TOutOfMemoryError", "gpu_ram_part"),
        (METAL, "mlx_lm.lora"),
        ("Error in (function (input, weight)  : CUDA out of memory. Tried to allocate 1.00 GiB", "gc()"),
        ("Error: cannot allocate vector of size 12.5 Gb", "gc()"),
        ("jaxlib: cuda_dnn.cc:502] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR", "PREALLOCATE=false"),
        ("tensorflow: failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED", "set_memory_growth"),
    ],
)
def test_other_frameworks_get_no_advice_about_torch(text: str, command: str) -> None:
    assert command in commands(text)
    assert "torch" not in commands(text)
    assert "oomph.guard" not in commands(text)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=9.batch", "#SBATCH --mem="),
        ("=>> PBS: job killed: mem 67109888kb exceeded limit 67108864kb", "#PBS -l select=1:ncpus=8:mem=96gb"),
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "#BSUB -M"),
        ("kubectl describe pod\n    Reason:       OOMKilled\n", "limits: {memory:"),
        ("Your session crashed after using all available RAM.", "!free -h"),
        ("/mnt/c/Users/a: WSL2\nKilled", "memory=24GB"),
        (
            "ray::train()\nray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory",
            "@ray.remote",
        ),
    ],
)
def test_more_memory_is_requested_where_the_run_is(text: str, command: str) -> None:
    assert command in commands(text)


FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB "
    "of which 10.00 MiB is free. Of the allocated memory 4.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by "
    "PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("before", "is_supported"),
    [("/home/ann/train.py", True), ("C:\\Users\\bob\\train.py", False), ("/mnt/c/Users/bob/train.py (WSL2)", False)],
)
def test_expandable_segments_are_advice_only_where_they_work(before: str, is_supported: bool) -> None:  # noqa: FBT001
    assert ("expandable_segments" in commands(f"{before}\n{FRAGMENTED}")) is is_supported


def test_kernel_log_is_not_sent_to_the_kernel_log() -> None:
    assert "dmesg" in commands("Killed")
    assert "dmesg" not in commands("[ 81.12] Out of memory: Killed process 4711 (python) total-vm:98kB, anon-rss:62kB")
    assert "dmesg" not in commands("PS C:\\> python train.py\nProcess finished with exit code 137")


def test_nvidia_smi_is_only_for_nvidia() -> None:
    assert "nvidia-smi" not in commands(CUDA.replace("CUDA", "HIP"))
    assert "nvidia-smi" not in commands("RuntimeError: MPS backend out of memory (MPS allocated: 8.80 GB)")


@pytest.mark.parametrize(
    ("line", "phase", "command"),
    [
        ("    torch.save(state, path)", Phase.SAVING, "cpu_offload=True"),
        ("    state = torch.load(path)", Phase.LOADING, 'map_location="cpu"'),
        ("    out = model.generate(**inputs)", Phase.GENERATING, "torch.inference_mode()"),
        ("  File 'a.py', line 3, in validate", Phase.EVALUATING, "torch.no_grad()"),
        ("  File 'torch/optim/adamw.py', line 179, in _init_group", Phase.CREATING_STATES, "AdamW8bit"),
        ("  File 'torch/optim/adam.py', line 522, in _multi_tensor_adam", Phase.UPDATING, "fused=True"),
    ],
)
def test_advice_fits_what_the_program_was_doing(line: str, phase: Phase, command: str) -> None:
    assert read_situation(CUDA, line).phase is phase
    assert command in commands(f"{line}\n{CUDA}")


def test_what_the_traceback_shows_comes_before_smaller_batches() -> None:
    validation = "  File 'a.py', line 3, in validate"
    head = 'File "/opt/venv/transformers/trainer.py", line 2052\n'
    shown = commands(f"{head}Traceback (most recent call last):\n{validation}\n{CUDA}").splitlines()
    assert "per_device_eval_batch_size" in shown[0]
    before = commands(f"{head}{validation}\nTraceback (most recent call last):\n{CUDA}").splitlines()
    assert "gradient_accumulation_steps" in before[0]
    assert "per_device_eval_batch_size" in before[1]


def test_saving_is_a_detail() -> None:
    (finding,) = read_log(f"    torch.save(state, path)\n{CUDA}")
    assert any("while the model was saved" in line for line in finding.details)


def test_message_decides_between_frameworks() -> None:
    """A warning of TensorFlow in the log of a torch run doesn't make it a run of TensorFlow."""
    noise = "2024-01-01 tensorflow/core/platform/cpu_feature_guard.cc: This TensorFlow binary is optimized"
    assert read_situation(CUDA, noise).speaker is Speaker.PYTORCH
    assert read_situation(CUDA, "C:\\a\nsrun python a.py").system is System.WINDOWS
    assert read_situation("Killed", "srun: job 9 queued").places == {Place.SLURM}


def test_programs_of_other_people_are_not_the_one_that_failed() -> None:
    before = 'File "/opt/peft/tuners/lora/layer.py", line 621\n'
    assert read_situation(CUDA, f"{before}a vLLM server of a colleague runs there, too").speaker is Speaker.HUGGINGFACE
    assert read_situation(CUDA, f"{before}vLLM server log:").speaker is Speaker.VLLM
