"""The `--device` flag."""

from __future__ import annotations

from ..errors import UsageError


def device_name(text: str | None) -> str | None:
    """Convert YOLOv5's device names to torch's: "0" becomes "cuda:0".

    Raises:
        UsageError: it names several GPUs, or isn't a device.
    """
    if text is None or text == "cpu":
        return text
    if text.isdigit():
        return f"cuda:{text}"
    if text == "cuda" or (text.startswith("cuda:") and text[5:].isdigit()):
        return text
    numbers = [number.strip() for number in text.replace("cuda:", "").split(",")]
    if len(numbers) > 1 and all(number.isdigit() for number in numbers):
        raise UsageError(
            f"'{text}' names {len(numbers)} GPUs, and each process trains on one",
            f"run `CUDA_VISIBLE_DEVICES={','.join(numbers)} torchrun --nproc-per-node {len(numbers)} -m oomph train …` "
            "with the other flags and without --device",
        )
    raise UsageError(f"{text!r} is not a device", "pass cpu or the number of a GPU; for several GPUs use torchrun")
