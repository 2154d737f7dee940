"""Fourier transforms on the host, for lengths whose DFT matrix would be much larger than the signal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..proto.decode import Array
from ..proto.graphdef import DOMAIN
from .numpy_ops import HostNode, Step, host_op


@host_op("Transform", DOMAIN)
def transform(node: HostNode) -> Step:
    """Transform x[..., n, 1 or 2] along n, cut or zero-padded to `length`: [..., k, 2], computed in double precision.

    With `inverse` and `onesided` the result is real: [..., length, 1].
    """
    length, inverse, onesided = (int(node.attrs[name]) for name in ("length", "inverse", "onesided"))

    def run(inputs: Sequence[Any]) -> list[Any]:
        x: Array = inputs[0]
        wide = x.astype(np.float64)
        numbers = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
        if inverse and onesided:
            return [np.fft.irfft(numbers, length)[..., None].astype(x.dtype)]
        found = (np.fft.ifft if inverse else np.fft.fft)(numbers, length)
        if onesided:
            found = found[..., : length // 2 + 1]
        return [np.stack([found.real, found.imag], -1).astype(x.dtype)]

    return run
