"""Causes of failures that are not about memory but are often mistaken for it."""

from __future__ import annotations

from ._kinds import Cause, FailureKind

_BLOCKING = "CUDA reports errors late: run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to find the real line."

OTHER_CAUSES = (
    Cause(
        FailureKind.DEVICE_ASSERT,
        "An assertion in a GPU kernel failed",
        "Mostly an index is out of range: a class label that equals the number of classes, or a token beyond the "
        "vocabulary. Afterwards every CUDA call of the process fails, sometimes with a message about memory.",
        ("Check labels and indices against the number of classes.", _BLOCKING),
    ),
    Cause(
        FailureKind.ILLEGAL_ACCESS,
        "A GPU kernel accessed an invalid address",
        "A kernel or extension has a bug, or an index is out of range. 'Memory' in the message means an address, not "
        "an amount.",
        (_BLOCKING, "Disable compiled extensions and torch.compile one by one.", "$ compute-sanitizer python …"),
    ),
    Cause(
        FailureKind.LAUNCH_FAILED,
        "A GPU kernel failed",
        "The kernel crashed or was launched with an impossible configuration. The cause may be an earlier error, a "
        "faulty card or an extension built for another torch.",
        (_BLOCKING, "Reinstall extensions that were compiled for another torch."),
    ),
    Cause(
        FailureKind.KERNEL_RESOURCES,
        "A GPU kernel needs more on-chip memory than the GPU has",
        "The message is about shared memory and registers, a few hundred KiB on the chip, not about the card's memory. "
        "The kernel was tuned for a larger GPU.",
        ("Use the kernel's settings for this GPU: smaller blocks or fewer stages.", "Or use the unfused version."),
    ),
    Cause(
        FailureKind.NO_KERNEL_IMAGE,
        "torch was not built for this GPU",
        "The GPU is older or newer than the architectures that the installed torch supports.",
        ("Install a torch build for this GPU.", "$ oomph doctor --torch"),
    ),
    Cause(
        FailureKind.DRIVER_OLD,
        "The NVIDIA driver is too old or partly updated",
        "torch's CUDA is newer than the driver supports, or the driver was updated without a restart.",
        ("Update the driver and restart, or install a torch built for an older CUDA.", "$ oomph doctor"),
    ),
    Cause(
        FailureKind.NO_CUDA_BUILD,
        "The installed torch has no CUDA",
        "It is the CPU build.",
        ("Install the CUDA build of torch.", "$ oomph doctor --torch"),
    ),
    Cause(
        FailureKind.NO_GPU,
        "No GPU is visible",
        "CUDA_VISIBLE_DEVICES hides it, the container was started without it, or the device index is too high.",
        ("$ nvidia-smi", "$ docker run --gpus all …", "$ oomph doctor"),
    ),
    Cause(
        FailureKind.DEVICE_BUSY,
        "Another process uses the GPU exclusively",
        "The GPU is in exclusive mode, and another process has opened it.",
        ("$ nvidia-smi", "Stop the other process, or reset the mode: nvidia-smi -c DEFAULT."),
    ),
    Cause(
        FailureKind.GPU_LOST,
        "The GPU failed",
        "The card fell off the bus, or its memory has an uncorrectable error: because of heat, power, or a failing "
        "card.",
        ("$ nvidia-smi -q -d ECC,TEMPERATURE", "Restart the machine. If it happens again, replace the card."),
    ),
    Cause(
        FailureKind.SHAPE,
        "Tensor shapes don't match",
        "Two tensors, or a layer and its input, have incompatible sizes.",
        ("Compare the shapes in the message with those that the layer expects.",),
    ),
    Cause(
        FailureKind.LAYOUT,
        "The memory layout of a tensor doesn't allow the operation",
        "A tensor was transposed or expanded, or has too few dimensions for channels_last. 'Memory' in such a message "
        "means a layout or an address, not an amount.",
        ("Use .reshape() instead of .view(), or call .contiguous() or .clone() first.",),
    ),
    Cause(
        FailureKind.INDEX,
        "An index is out of range",
        "A label, token or row number is too large.",
        ("Compare the index in the message with the size: number of classes, vocabulary, batch.",),
    ),
    Cause(
        FailureKind.DEVICE_OR_DTYPE,
        "Tensors are on different devices or have different dtypes",
        "One tensor is on the CPU and the other on the GPU, or only one of them has half precision.",
        ("Move or convert the tensor that the message names.",),
    ),
    Cause(
        FailureKind.BATCH_OF_ONE,
        "BatchNorm can't train on a single value",
        "The last batch, or a micro-batch, has one sample. Memory is not the problem, but small batches cause this "
        "error.",
        ("Use drop_last=True, micro-batches of at least two samples, or GroupNorm.",),
    ),
    Cause(
        FailureKind.AUTOGRAD,
        "The backward graph is used incorrectly",
        "It was already freed, a tensor in it was modified in place, or no tensor in it requires a gradient.",
        ("Call backward once per forward, and don't modify tensors in place that backward needs.",),
    ),
    Cause(
        FailureKind.UNUSED_PARAMETERS,
        "DistributedDataParallel waits for gradients that never come",
        "Some parameters don't contribute to the loss.",
        ("Use find_unused_parameters=True, or make every parameter contribute to the loss.",),
    ),
    Cause(
        FailureKind.STATE_DICT,
        "The checkpoint doesn't match the model",
        "Names or shapes of its weights differ from those of the model.",
        ("Build the model with the settings that the checkpoint was trained with.",),
    ),
    Cause(
        FailureKind.BAD_CHECKPOINT,
        "The checkpoint can't be read",
        "It is truncated, perhaps because of a full disk or a kill during writing, or it contains more than weights.",
        ("Use an earlier checkpoint.", "Compare its size with the others."),
    ),
    Cause(
        FailureKind.BAD_IMAGE,
        "An image can't be read",
        "It is damaged, truncated, or larger than the decoder's safety limit.",
        ("Find the file that the message names, and repair or remove it.",),
    ),
    Cause(
        FailureKind.MISSING_MODULE,
        "A Python package is missing",
        "It is not installed in the current environment.",
        ("Install it in this environment.", "$ python -m pip list"),
    ),
    Cause(
        FailureKind.BROKEN_LIBRARY,
        "A compiled library doesn't load",
        "It was built for another torch, CUDA or system, or one of its files is missing. 'Cannot allocate memory in "
        "static TLS block' is such an error too: it is about the order of imports, not about RAM.",
        ("Install matching versions.", "$ oomph doctor --torch"),
    ),
    Cause(
        FailureKind.MISSING_FILE,
        "A file is missing",
        "A path doesn't exist.",
        ("Check the path that the message names.",),
    ),
    Cause(
        FailureKind.PERMISSION,
        "Access to a file is denied",
        "This user may not read or write it.",
        ("Check the permissions of the path that the message names.",),
    ),
    Cause(
        FailureKind.DISK_FULL,
        "The disk is full",
        "'No space left on device' means the disk here, not the GPU.",
        ("$ df -h", "Remove old checkpoints, or write to another disk."),
    ),
    Cause(
        FailureKind.MISSING_MAIN_GUARD,
        "Every worker runs the training script again",
        "Spawned workers (Windows, macOS) import the script. Without a main guard, the import starts training again.",
        ('Put the training into a function that is called under: if __name__ == "__main__":',),
    ),
    Cause(
        FailureKind.PORT_IN_USE,
        "The port for the ranks is in use",
        "An earlier run is still alive, or two jobs share a machine.",
        ("$ torchrun --standalone …", "Stop the earlier run."),
    ),
    Cause(
        FailureKind.THREAD_LIMIT,
        "The system refuses more threads or processes",
        "The process limit (ulimit -u) or that of the container is reached: too many workers with too many threads.",
        ("Use fewer workers, and OMP_NUM_THREADS=1 in them.", "$ ulimit -u"),
    ),
    Cause(
        FailureKind.NETWORK,
        "A download failed",
        "Weights or data could not be downloaded: the machine is offline, the address is wrong, access needs a token, "
        "or the server is busy.",
        ("Open the address in the message by hand.", "Download the files once, and use their local paths."),
    ),
    Cause(
        FailureKind.COMPILER,
        "An extension could not be compiled",
        "The compiler is missing, too old or too new for this CUDA, or doesn't know the requested GPU architecture.",
        (
            "Look at the first error above: the last lines only say that it failed.",
            "Install a build for this torch, or a toolkit with the same CUDA version.",
            "$ oomph doctor --torch",
        ),
    ),
    Cause(
        FailureKind.LOADER_TIMEOUT,
        "The data loader timed out",
        "A worker hangs or reads from slow storage.",
        ("Run once with num_workers=0 to see where it hangs.", "Check the disk or network that the data is on."),
    ),
    Cause(
        FailureKind.CRASH,
        "A compiled library crashed",
        "A segmentation fault or a corrupted heap is a bug in compiled code, or libraries don't match. The amount of "
        "memory is not the problem.",
        ("Find the location:", "$ python -X faulthandler …", "Update or reinstall the library that it names."),
    ),
    Cause(
        FailureKind.ABORTED,
        "The process aborted",
        "A library called abort() (signal 6) because it could not continue. Its reason is in the lines above, if it "
        "printed one.",
        ("Look at the last lines before it.", "$ python -X faulthandler …"),
    ),
    Cause(
        FailureKind.TIME_LIMIT,
        "The job reached the scheduler's time limit",
        "The job ran for as long as it had requested.",
        ("Request more time, and resume from the last checkpoint.",),
    ),
    Cause(
        FailureKind.STOPPED,
        "The run was stopped",
        "It received Ctrl-C or SIGTERM, which clusters send before they reclaim a machine.",
        ("Resume from the last checkpoint.",),
    ),
    Cause(
        FailureKind.PYTHON_ERROR,
        "A Python error",
        "The program raised it.",
        ("Look at the last line of the traceback that is in your own code.",),
    ),
)
