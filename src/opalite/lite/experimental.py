"""Names of `tf.lite.experimental`."""

from __future__ import annotations

import enum

from .delegates import load_delegate


@enum.unique
class OpResolverType(enum.Enum):
    """LiteRT's sets of kernels; each gives Opalite's own."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


__all__ = ["OpResolverType", "load_delegate"]
