"""Causes of failures that are not about memory but are often mistaken for it: the GPU, limits, and the system."""

from __future__ import annotations

from .. import _common_advice as common
from .._kinds import Advice, Cause, FailureKind, Resource

_TORCH_DOCTOR = Advice("See which GPUs this torch supports, and which CUDA it has:", "$ oomph doctor --torch")
_FAULTHANDLER = Advice("Find the location:", "$ python -X faulthandler train.py")

GPU_CAUSES = (
    Cause(
        FailureKind.DEVICE_ASSERT,
        "An assertion in a GPU kernel failed",
        "Mostly an index is out of range: a class label that equals the number of classes, or a token beyond the "
        "vocabulary. Afterwards every CUDA call of the process fails, sometimes with a message about memory.",
        (
            Advice(
                "Check labels and indices against the number of classes or the vocabulary:",
                "assert 0 <= labels.min() and labels.max() < num_classes",
            ),
            common.BLOCKING,
        ),
    ),
    Cause(
        FailureKind.VALUE_ASSERT,
        "A value is outside the range that the loss allows",
        "binary_cross_entropy needs inputs and targets between 0 and 1, and got another value or NaN: a sigmoid is "
        "missing, or the model already diverged. It is a value, not an index, and memory is not the problem.",
        (
            Advice(
                "Use the loss that takes logits, without a sigmoid before it:",
                "loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)",
            ),
            Advice(
                "Check inputs and targets for values outside 0 to 1 and for NaN:",
                "assert torch.isfinite(x).all() and 0 <= x.min() and x.max() <= 1",
            ),
            common.BLOCKING,
        ),
    ),
    Cause(
        FailureKind.ILLEGAL_ACCESS,
        "A GPU kernel accessed an invalid address",
        "A kernel or extension has a bug, or an index is out of range. 'Memory' in the message means an address, not "
        "an amount.",
        (
            common.BLOCKING,
            Advice("Let NVIDIA's tool find the kernel:", "$ compute-sanitizer python train.py"),
            Advice(
                "Disable compiled extensions and torch.compile one by one:", "$ TORCHDYNAMO_DISABLE=1 python train.py"
            ),
        ),
    ),
    Cause(
        FailureKind.LAUNCH_FAILED,
        "A GPU kernel failed",
        "The kernel crashed or was launched with an impossible configuration. The cause may be an earlier error, a "
        "faulty card or an extension built for another torch.",
        (
            common.BLOCKING,
            Advice(
                "Reinstall extensions that were compiled for another torch:",
                "$ pip install --force-reinstall --no-cache-dir PACKAGE",
            ),
            Advice("Check the card and the driver:", "$ nvidia-smi -q -d ECC,TEMPERATURE; sudo dmesg | grep -i xid"),
        ),
    ),
    Cause(
        FailureKind.KERNEL_RESOURCES,
        "A GPU kernel needs more on-chip memory than the GPU has",
        "The message is about shared memory and registers, a few hundred KiB on the chip, not about the card's memory. "
        "The kernel was tuned for a larger GPU.",
        (
            Advice(
                "Use the kernel's settings for this GPU: smaller blocks or fewer stages.",
                'triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=2)',
            ),
            Advice("Or use the unfused version:", "$ TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
    ),
    Cause(
        FailureKind.NO_KERNEL_IMAGE,
        "torch was not built for this GPU",
        "The GPU is older or newer than the architectures that the installed torch supports.",
        (
            Advice(
                "Install a torch build for this GPU (pytorch.org, Get Started), and check:", "$ oomph doctor --torch"
            ),
        ),
    ),
    Cause(
        FailureKind.DRIVER_OLD,
        "The NVIDIA driver is too old or partly updated",
        "torch's CUDA is newer than the driver supports, or the driver was updated without a restart.",
        (
            Advice("Update the driver and restart, or install a torch built for an older CUDA.", "$ nvidia-smi"),
            _TORCH_DOCTOR,
        ),
    ),
    Cause(
        FailureKind.NO_CUDA_BUILD,
        "The installed torch has no CUDA",
        "It is the CPU build.",
        (Advice("Install the CUDA build of torch (pytorch.org, Get Started), and check:", "$ oomph doctor --torch"),),
    ),
    Cause(
        FailureKind.NO_GPU,
        "No GPU is visible",
        "CUDA_VISIBLE_DEVICES hides it, the container was started without it, or the device index is too high.",
        (
            Advice(
                "See which GPUs the driver has, and which this process may use:",
                "$ nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
            ),
            Advice("Start a container with its GPUs:", "$ docker run --gpus all …"),
            common.DOCTOR,
        ),
    ),
    Cause(
        FailureKind.DEVICE_BUSY,
        "Another process uses the GPU exclusively",
        "The GPU is in exclusive mode, and another process has opened it.",
        (
            Advice("Find the other process, and stop it or wait for it:", "$ nvidia-smi"),
            Advice("Or reset the mode:", "$ sudo nvidia-smi -c DEFAULT"),
        ),
    ),
    Cause(
        FailureKind.GPU_LOST,
        "The GPU failed",
        "The card fell off the bus, or its memory has an uncorrectable error: because of heat, power, or a failing "
        "card. No setting of the training fixes this.",
        (
            Advice(
                "Read the driver's Xid errors, temperature, power and ECC counters:",
                "$ sudo dmesg -T | grep -i xid; nvidia-smi -q -d ECC,TEMPERATURE,POWER",
            ),
            Advice(
                "Restart the machine, and check power cables and the slot. If it happens again, replace the card.",
                "$ sudo reboot",
            ),
            Advice("Limit the power until then:", "$ sudo nvidia-smi -pl 250"),
        ),
    ),
    Cause(
        FailureKind.MIXED_LIBRARIES,
        "CUDA libraries of different versions are mixed",
        "torch was built with one cuBLAS or cuDNN and loads another: from LD_LIBRARY_PATH, a CUDA toolkit, or another "
        "version of pip's nvidia packages. The call then gets arguments that it rejects.",
        (
            Advice("Don't let a CUDA toolkit hide torch's own libraries:", "$ unset LD_LIBRARY_PATH"),
            Advice(
                "Install the version of cuBLAS that this torch was built with: remove others, reinstall torch.",
                "$ pip uninstall -y nvidia-cublas-cu11 nvidia-cublas-cu12; pip install --force-reinstall torch",
            ),
            Advice(
                "If it remains, run once on the CPU or with blocking launches, to rule out wrong shapes and dtypes:",
                "$ CUDA_LAUNCH_BLOCKING=1 python train.py",
            ),
        ),
        likely_title="CUDA libraries of different versions are most likely mixed",
        is_sure=False,
    ),
)

SYSTEM_CAUSES = (
    Cause(
        FailureKind.FORKED_CUDA,
        "CUDA was used in a forked process",
        "A process that has already used the GPU was forked, and CUDA can't be used again in the copy.",
        (
            Advice(
                "Start the workers with spawn:",
                'torch.multiprocessing.set_start_method("spawn")  # or DataLoader(multiprocessing_context="spawn")',
            ),
            Advice(
                "Or keep data on the CPU in the workers, and move batches in the training loop:", "x = x.to(device)"
            ),
        ),
    ),
    Cause(
        FailureKind.MISSING_MODULE,
        "A Python package is missing",
        "It is not installed in the current environment.",
        (Advice("Install it in this environment:", "$ python -m pip install PACKAGE"),),
    ),
    Cause(
        FailureKind.BROKEN_LIBRARY,
        "A compiled library doesn't load",
        "It was built for another torch, CUDA or system, or one of its files is missing. 'Cannot allocate memory in "
        "static TLS block' is such an error too: it is about the order of imports, not about RAM.",
        (Advice("Install matching versions, in a new environment if needed, and check:", "$ oomph doctor --torch"),),
    ),
    Cause(
        FailureKind.MISSING_FILE,
        "A file is missing",
        "A path doesn't exist.",
        (Advice("Check the path that the message names; relative ones start here:", "$ pwd; ls -la PATH"),),
    ),
    Cause(
        FailureKind.PERMISSION,
        "Access to a file is denied",
        "This user may not read or write it.",
        (Advice("Check the permissions and the owner of the path that the message names:", "$ ls -ld PATH; id"),),
    ),
    Cause(
        FailureKind.DISK_FULL,
        "The disk is full",
        "The file system that is written to has no space left (ENOSPC). The device is the disk here, not the GPU.",
        (
            Advice("See which disk is full, and what fills it:", "$ df -h; du -xh . | sort -h | tail"),
            Advice(
                "Remove old checkpoints, or write them and temporary files to another disk:",
                "$ export TMPDIR=/path/on/a/larger/disk",
            ),
        ),
        resource=Resource.DISK,
        likely_title="A file could not be written, most likely because the disk is full",
    ),
    Cause(
        FailureKind.DISK_QUOTA,
        "The disk quota or limit is used up",
        "The disk has space, but this user, project or container may not use more of it, in bytes or in number of "
        "files. Memory is not the problem.",
        (
            Advice("See how much of the quota is used:", "$ quota -s; lfs quota -h -u $USER $HOME"),
            Advice(
                "Remove old checkpoints and caches, or move them to scratch space:",
                "$ export HF_HOME=/scratch/$USER/hf TORCH_HOME=/scratch/$USER/torch",
            ),
        ),
        resource=Resource.QUOTA,
    ),
    Cause(
        FailureKind.FILE_WATCHES,
        "The limit of file watches (inotify) is reached",
        "Programs that watch folders for changes (TensorBoard, Jupyter, VS Code, Ray, Streamlit) use inotify watches. "
        "The kernel reports the limit as 'No space left on device', although neither disk nor memory is full.",
        (
            Advice(
                "Raise the limit:",
                "$ sudo sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024",
            ),
        ),
        resource=Resource.NONE,
    ),
    Cause(
        FailureKind.MISSING_MAIN_GUARD,
        "Every worker runs the training script again",
        "Spawned workers (Windows, macOS) import the script. Without a main guard, the import starts training again.",
        (
            Advice(
                "Put the training into a function, and call it only in the main process:",
                'if __name__ == "__main__": main()',
            ),
        ),
        lint_rules=("workers-without-main-guard",),
    ),
    Cause(
        FailureKind.PORT_IN_USE,
        "The port for the ranks is in use",
        "An earlier run is still alive, or two jobs share a machine.",
        (
            Advice("Let torchrun choose a free port:", "$ torchrun --standalone …"),
            Advice("Or find the earlier run, and stop it:", "$ ss -ltnp | grep 29500"),
        ),
    ),
    Cause(
        FailureKind.THREAD_LIMIT,
        "The system refuses more threads or processes",
        "The process limit (ulimit -u) or that of the container is reached: too many workers with too many threads.",
        (
            Advice(
                "Use fewer workers, with one thread each:", "$ OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python train.py"
            ),
            Advice("Raise the limit of processes:", "$ ulimit -u 65536"),
            Advice("In a container, raise its limit:", "$ docker run --pids-limit=-1 …"),
        ),
        resource=Resource.PROCESSES,
    ),
    Cause(
        FailureKind.NETWORK,
        "A download failed",
        "Weights or data could not be downloaded: the machine is offline, the address is wrong, access needs a token, "
        "or the server is busy.",
        (
            Advice("Open the address in the message by hand:", "$ curl -I ADDRESS"),
            Advice("Or download the files once, and use their local paths:", "$ HF_HUB_OFFLINE=1 python train.py"),
        ),
    ),
    Cause(
        FailureKind.COMPILER,
        "An extension could not be compiled",
        "The compiler is missing, too old or too new for this CUDA, or doesn't know the requested GPU architecture.",
        (
            Advice(
                "Look at the first error above: the last lines only say that it failed.", "$ grep -n -m3 -i error LOG"
            ),
            Advice(
                "Install a build for this torch, or a toolkit with the same CUDA version:",
                "$ nvcc --version; oomph doctor --torch",
            ),
        ),
    ),
    Cause(
        FailureKind.LOADER_TIMEOUT,
        "The data loader timed out",
        "A worker hangs or reads from slow storage.",
        (
            Advice("Run once without workers to see where it hangs:", "DataLoader(dataset, num_workers=0)"),
            Advice(
                "Check the disk or network that the data is on, or allow more time:", "DataLoader(dataset, timeout=300)"
            ),
        ),
    ),
    Cause(
        FailureKind.HANG,
        "The command hung and was stopped",
        "It wrote no output and used no CPU or GPU for the time of `oomph run --timeout-idle`: it waited for another "
        "process, a lock, the network or input.",
        (
            Advice("Show where it waits the next time, before it is stopped:", "$ py-spy dump --pid PID"),
            Advice(
                "Run once without workers: one that was forked while a lock was held never gets it:",
                "DataLoader(dataset, num_workers=0)",
            ),
            Advice("With several ranks, look at the logs of all: one of them has died or waits elsewhere."),
        ),
    ),
    Cause(
        FailureKind.KILLED,
        "The command was killed from outside",
        "It received SIGKILL while memory was free, so the kernel's out-of-memory killer is unlikely. A scheduler, a "
        "script, a user or the limit of a container outside this one sent it.",
        (common.KERNEL_LOG, Advice("Look at the log of the scheduler or of the machine at that time.")),
    ),
    Cause(
        FailureKind.CRASH,
        "A compiled library crashed",
        "A segmentation fault or a corrupted heap is a bug in compiled code, or libraries don't match. The amount of "
        "memory is not the problem.",
        (
            _FAULTHANDLER,
            Advice("Update or reinstall the library that it names:", "$ pip install --force-reinstall PACKAGE"),
        ),
    ),
    Cause(
        FailureKind.ABORTED,
        "The process aborted",
        "A library called abort() (signal 6) because it could not continue. Its reason is in the lines above, if it "
        "printed one.",
        (Advice("Look at the last lines before it, or find the location:", "$ python -X faulthandler train.py"),),
    ),
    Cause(
        FailureKind.TIME_LIMIT,
        "The job reached the scheduler's time limit",
        "The job ran for as long as it had requested.",
        (Advice("Request more time, and resume from the last checkpoint:", "#SBATCH --time=24:00:00"),),
    ),
    Cause(
        FailureKind.STOPPED,
        "The run was stopped",
        "Somebody pressed Ctrl-C (KeyboardInterrupt), a cluster reclaimed the machine (SIGTERM), or the terminal was "
        "closed (SIGHUP). A ^C that nobody typed in Colab means that RAM ran out.",
        (
            Advice("Resume from the last checkpoint."),
            Advice("Start it so that it outlives the terminal:", "$ nohup python train.py > train.log 2>&1 &"),
            Advice("If nobody stopped it, check whether RAM ran out:", "$ oomph doctor"),
        ),
    ),
)
