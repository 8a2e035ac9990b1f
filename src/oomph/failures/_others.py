"""The causes that are not about memory but are taken for it: what each is, and what to do."""

from __future__ import annotations

from ._kind import Cause, FailureKind

_BLOCKING = "CUDA reports errors late: run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to see the true line."

OTHER_CAUSES = (
    Cause(
        FailureKind.DEVICE_ASSERT,
        "A check inside a GPU kernel failed",
        "Mostly an index out of range: a class label as large as the number of classes, a token beyond the vocabulary. "
        "After it every CUDA call of the process fails, also with words about memory.",
        ("Check labels and indices against the number of classes.", _BLOCKING),
    ),
    Cause(
        FailureKind.ILLEGAL_ACCESS,
        "A GPU kernel read or wrote where it must not",
        "A bug in a kernel or an extension, or an index out of range; 'memory' in the message means an address, not an "
        "amount.",
        (_BLOCKING, "Switch off compiled extensions and torch.compile one by one.", "$ compute-sanitizer python …"),
    ),
    Cause(
        FailureKind.LAUNCH_FAILED,
        "A GPU kernel failed",
        "The kernel crashed or was asked for an impossible launch. It may be an earlier error, a faulty card or an "
        "extension built for another torch.",
        (_BLOCKING, "Reinstall extensions that were compiled against another torch."),
    ),
    Cause(
        FailureKind.KERNEL_RESOURCES,
        "A GPU kernel needs more on-chip memory than the GPU has",
        "Shared memory and registers of the chip are meant here, a few hundred KiB that have nothing to do with the "
        "memory of the card. The kernel was tuned for a larger GPU.",
        ("Use the kernel's settings for this GPU: smaller blocks or fewer stages.", "Or use the unfused version."),
    ),
    Cause(
        FailureKind.NO_KERNEL_IMAGE,
        "torch was not built for this GPU",
        "The GPU is older or newer than the architectures in the installed torch.",
        ("Install a torch build for this GPU.", "$ oomph doctor --torch"),
    ),
    Cause(
        FailureKind.DRIVER_OLD,
        "The NVIDIA driver is too old, or half updated",
        "torch's CUDA is newer than the driver allows, or the driver was updated and the machine not restarted.",
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
        "No GPU can be seen",
        "CUDA_VISIBLE_DEVICES hides it, the container was started without it, or the number of the device is too high.",
        ("$ nvidia-smi", "$ docker run --gpus all …", "$ oomph doctor"),
    ),
    Cause(
        FailureKind.DEVICE_BUSY,
        "The GPU is taken",
        "It is in exclusive mode, and another process has it.",
        ("$ nvidia-smi", "End the other process, or set the mode back: nvidia-smi -c DEFAULT."),
    ),
    Cause(
        FailureKind.GPU_LOST,
        "The GPU failed",
        "The card fell off the bus, or its memory has an error that can't be corrected: heat, power, or a dying card.",
        ("$ nvidia-smi -q -d ECC,TEMPERATURE", "Restart the machine; if it comes back, have the card replaced."),
    ),
    Cause(
        FailureKind.SHAPE,
        "Shapes don't fit together",
        "Two tensors, or a layer and its input, don't agree in size.",
        ("Compare the shapes in the message with what the layer expects.",),
    ),
    Cause(
        FailureKind.LAYOUT,
        "The order of a tensor's elements doesn't allow the operation",
        "A tensor was transposed, expanded or has too few dimensions for channels_last; 'memory' in such a message "
        "means an order or an address, not an amount.",
        ("Use .reshape() instead of .view(), or .contiguous() or .clone() before.",),
    ),
    Cause(
        FailureKind.INDEX,
        "An index is out of range",
        "A label, token or row beyond what there is.",
        ("Compare the index in the message with the size: the number of classes, the vocabulary, the batch.",),
    ),
    Cause(
        FailureKind.PLACE_OR_TYPE,
        "Tensors are on different devices or of different types",
        "One is on the CPU and the other on the GPU, or one is half precision and the other isn't.",
        ("Move or convert the one that the message names.",),
    ),
    Cause(
        FailureKind.BATCH_OF_ONE,
        "BatchNorm can't train on a single value",
        "The last batch, or a piece, has one sample. Memory isn't short, though making batches small leads here.",
        ("Use drop_last=True, or pieces of at least two samples, or GroupNorm.",),
    ),
    Cause(
        FailureKind.AUTOGRAD,
        "The graph of the backward pass is used wrongly",
        "It was freed already, a tensor in it was changed in place, or nothing in it needs a gradient.",
        ("Call backward once per forward; avoid in-place changes of what backward needs.",),
    ),
    Cause(
        FailureKind.UNUSED_PARAMETERS,
        "DistributedDataParallel waits for gradients that never come",
        "Some parameters took no part in the loss.",
        ("Use find_unused_parameters=True, or make every parameter take part.",),
    ),
    Cause(
        FailureKind.STATE_DICT,
        "The checkpoint doesn't belong to this model",
        "Names or shapes of its weights differ from the model's.",
        ("Build the model with the settings that the checkpoint was trained with.",),
    ),
    Cause(
        FailureKind.BAD_CHECKPOINT,
        "The checkpoint can't be read",
        "It was cut short, perhaps by a full disk or a kill while it was written, or it holds more than weights.",
        ("Use the checkpoint before it.", "Check its size against the others."),
    ),
    Cause(
        FailureKind.BAD_IMAGE,
        "An image can't be read",
        "It is broken, cut short, or larger than the decoder's safety limit.",
        ("Find and mend or remove the file that the message names.",),
    ),
    Cause(
        FailureKind.MISSING_MODULE,
        "A Python package is missing",
        "It is not installed in the environment that runs.",
        ("Install it into this environment.", "$ python -m pip list"),
    ),
    Cause(
        FailureKind.BROKEN_LIBRARY,
        "A compiled library doesn't load",
        "It was built for another torch, CUDA or system, or a file of it is missing. 'Cannot allocate memory in static "
        "TLS block' belongs here too: it is about the order of imports, not about RAM.",
        ("Install versions that belong together.", "$ oomph doctor --torch"),
    ),
    Cause(
        FailureKind.MISSING_FILE,
        "A file is missing",
        "A path leads nowhere.",
        ("Check the path that the message names.",),
    ),
    Cause(
        FailureKind.PERMISSION,
        "A file may not be used",
        "This user has no right to read or write it.",
        ("Check the rights of the path that the message names.",),
    ),
    Cause(
        FailureKind.DISK_FULL,
        "The disk is full",
        "'No space left on device' means the disk here, not the GPU.",
        ("$ df -h", "Remove old checkpoints, or write elsewhere."),
    ),
    Cause(
        FailureKind.SPAWN_GUARD,
        "The script starts itself again in every worker",
        "Where processes are spawned (Windows, macOS), workers import the script; without a guard it trains anew.",
        ('Put the training into a function called under: if __name__ == "__main__":',),
    ),
    Cause(
        FailureKind.PORT_IN_USE,
        "The port for the ranks is taken",
        "An earlier run still lives, or two jobs share a machine.",
        ("$ torchrun --standalone …", "End the earlier run."),
    ),
    Cause(
        FailureKind.THREAD_LIMIT,
        "The system refuses more threads or processes",
        "The limit on processes (ulimit -u) or of the container is reached: too many workers times too many threads.",
        ("Use fewer workers, and OMP_NUM_THREADS=1 in them.", "$ ulimit -u"),
    ),
    Cause(
        FailureKind.NETWORK,
        "The network, or a server, did not answer as hoped",
        "Weights or data were to be fetched: the machine is offline, the address is wrong, access needs a key, or the "
        "server is busy.",
        ("Try the address of the message by hand.", "Fetch what is needed once, and name the files on the disk."),
    ),
    Cause(
        FailureKind.COMPILER,
        "An extension could not be compiled",
        "The compiler is missing, too old or too new for this CUDA, or was told of a GPU that it doesn't know.",
        (
            "Look at the first error above: the last lines only say that it failed.",
            "Install a build for this torch, or a toolkit of the same CUDA.",
            "$ oomph doctor --torch",
        ),
    ),
    Cause(
        FailureKind.LOADER_TIMEOUT,
        "The loader did not deliver in time",
        "A worker hangs or reads from something slow.",
        ("Run once with num_workers=0 to see where it stands.", "Check the disk or network that the data lies on."),
    ),
    Cause(
        FailureKind.CRASH,
        "A compiled library crashed",
        "A segmentation fault or a damaged heap is a bug in compiled code, or libraries that don't belong together; "
        "the amount of memory has nothing to do with it.",
        ("See where:", "$ python -X faulthandler …", "Update or reinstall the library it names."),
    ),
    Cause(
        FailureKind.ABORTED,
        "The process ended itself",
        "A library called abort() (signal 6) when it could not go on: the reason stands above it, if it was written at "
        "all.",
        ("Look at what was written just before.", "$ python -X faulthandler …"),
    ),
    Cause(
        FailureKind.TIME_LIMIT,
        "The scheduler's time was up",
        "The job ran as long as it had asked for.",
        ("Ask for more time, and resume from the last checkpoint.",),
    ),
    Cause(
        FailureKind.STOPPED,
        "Somebody stopped it",
        "Ctrl-C, or a polite signal to end (SIGTERM), as clusters send before they take a machine back.",
        ("Resume from the last checkpoint.",),
    ),
    Cause(
        FailureKind.PYTHON_ERROR,
        "A Python error",
        "The program itself raised it.",
        ("Look at the last line of the traceback that lies in your own code.",),
    ),
)
