"""Causes of errors in code and data that are not about memory."""

from __future__ import annotations

from .._kinds import Advice, Cause, FailureKind

CODE_CAUSES = (
    Cause(
        FailureKind.SHAPE,
        "Tensor shapes don't match",
        "Two tensors, or a layer and its input, have incompatible sizes.",
        (Advice("Compare the shapes in the message with those that the layer expects:", "print(x.shape, layer)"),),
        lint_rules=("ragged-default-collate",),
    ),
    Cause(
        FailureKind.LAYOUT,
        "The memory layout of a tensor doesn't allow the operation",
        "A tensor was transposed or expanded, or has too few dimensions for channels_last. 'Memory' in such a message "
        "means a layout or an address, not an amount.",
        (Advice("Use .reshape() instead of .view(), or copy the tensor first:", "x = x.contiguous()"),),
    ),
    Cause(
        FailureKind.INDEX,
        "An index is out of range",
        "A label, token or row number is too large.",
        (
            Advice(
                "Compare the index in the message with the size: number of classes, vocabulary, batch.",
                "print(indices.min(), indices.max(), embedding.num_embeddings)",
            ),
            Advice("Check labels before training:", "assert 0 <= labels.min() and labels.max() < num_classes"),
        ),
    ),
    Cause(
        FailureKind.DEVICE_OR_DTYPE,
        "Tensors are on different devices or have different dtypes",
        "One tensor is on the CPU and the other on the GPU, or only one of them has half precision.",
        (Advice("Move or convert the tensor that the message names:", "x = x.to(model.device, model.dtype)"),),
    ),
    Cause(
        FailureKind.BATCH_OF_ONE,
        "BatchNorm can't train on a single value",
        "The last batch, or a micro-batch, has one sample. Memory is not the problem, but small batches cause this "
        "error.",
        (
            Advice("Drop the last batch if it has one sample:", "DataLoader(dataset, drop_last=True)"),
            Advice("Or use micro-batches of at least two samples, or GroupNorm:", "nn.GroupNorm(32, channels)"),
        ),
    ),
    Cause(
        FailureKind.AUTOGRAD,
        "The backward graph is used incorrectly",
        "It was already freed, a tensor in it was modified in place, or no tensor in it requires a gradient.",
        (
            Advice(
                "Call backward once per forward, and don't modify tensors in place that backward needs. Find the line:",
                "torch.autograd.set_detect_anomaly(True)",
            ),
        ),
    ),
    Cause(
        FailureKind.UNUSED_PARAMETERS,
        "DistributedDataParallel waits for gradients that never come",
        "Some parameters don't contribute to the loss.",
        (
            Advice(
                "Make every parameter contribute to the loss, or let DDP look for those that don't:",
                "DistributedDataParallel(model, find_unused_parameters=True)",
            ),
        ),
    ),
    Cause(
        FailureKind.STATE_DICT,
        "The checkpoint doesn't match the model",
        "Names or shapes of its weights differ from those of the model.",
        (
            Advice(
                "Build the model with the settings that the checkpoint was trained with, and compare:",
                "print(model.load_state_dict(state, strict=False))",
            ),
        ),
    ),
    Cause(
        FailureKind.BAD_CHECKPOINT,
        "The checkpoint can't be read",
        "It is truncated, perhaps because of a full disk or a kill during writing, or it contains more than weights.",
        (
            Advice("Compare its size with the others, and use an earlier one:", "$ ls -la CHECKPOINTS"),
            Advice("If you trust the file and it contains more than weights:", "torch.load(path, weights_only=False)"),
        ),
    ),
    Cause(
        FailureKind.BAD_IMAGE,
        "An image can't be read",
        "It is damaged, truncated, or larger than the decoder's safety limit.",
        (Advice("Find the file that the message names, and repair or remove it:", "PIL.Image.open(path).verify()"),),
    ),
    Cause(
        FailureKind.PYTHON_ERROR,
        "A Python error",
        "The program raised it.",
        (
            Advice("Look at the last line of the traceback that is in your own code."),
            Advice("Run it under a debugger, which stops there:", "$ python -m pdb -c continue train.py"),
        ),
    ),
)
