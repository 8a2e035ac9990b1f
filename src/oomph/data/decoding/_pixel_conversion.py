"""Conversion of samples of any type and number of bands to 8-bit RGB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PixelConversion:
    """Settings for the conversion of samples to bytes.

    Attributes:
        bands: bands used as red, green and blue. Default: the first three, or a single band three times.
        levels: sample values that become 0 and 255. Default: the full range of the type, or 0 to 1 for floats.
    """

    bands: tuple[int, int, int] | None = None
    levels: tuple[float, float] | None = None

    def select_bands(self, count: int) -> tuple[int, ...]:
        """Return the bands to read from `count` bands: three, or one for a gray image."""
        if self.bands is not None:
            return tuple(min(max(band, 0), count - 1) for band in self.bands)
        return (0, 1, 2) if count > 2 else (0,)  # noqa: PLR2004  two bands are gray and alpha


def to_uint8(samples: NDArray[np.generic], levels: tuple[float, float] | None) -> NDArray[np.uint8]:
    """Convert samples to bytes; NaN becomes 0."""
    if samples.dtype == np.uint8 and levels is None:
        return samples.view(np.ndarray).astype(np.uint8, copy=False)
    if samples.dtype == np.uint16 and levels is None:
        return np.asarray(np.right_shift(samples, 8), np.uint8)
    low, high = levels or _default_levels(samples.dtype)
    scaled = (samples.astype(np.float32) - low) * (255.0 / max(high - low, 1e-12))
    np.nan_to_num(scaled, copy=False, nan=0.0, posinf=255.0, neginf=0.0)
    return np.clip(scaled, 0, 255, out=scaled).astype(np.uint8)


def _default_levels(dtype: np.dtype[np.generic]) -> tuple[float, float]:
    if dtype.kind == "f":
        return 0.0, 1.0
    info = np.iinfo(dtype)  # type: ignore[type-var]
    return (0.0 if dtype.kind == "i" else float(info.min)), float(info.max)


def to_rgb(samples: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of one or three bands with three bands."""
    if samples.ndim == 2:  # noqa: PLR2004  no axis for bands
        samples = samples[:, :, None]
    return np.repeat(samples, 3, axis=2) if samples.shape[2] == 1 else np.ascontiguousarray(samples)
