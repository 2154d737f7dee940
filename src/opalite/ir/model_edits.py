"""ModelEdits: what a caller changes in a model before it is loaded. Plain data; importer/proto/apply_edits.py applies
it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ModelEdits:
    """Sizes for open dimensions of the inputs, other values for initializers, and less of outputs.

    dims: sizes by symbol. dims_by_denotation: sizes by what a dimension is denoted as ('DATA_BATCH').
    initializers: arrays by name, in place of the model's own. external: arrays in place of initializers that refer to
    a data file. files: contents of data files by location. folder: where data files lie, if not beside the model.
    last: outputs [batch, positions, ...] that give their last position only, [batch, 1, ...]. likeliest: outputs
    [batch, positions, n] beside which two others, [batch, 1] each, tell where the largest number of the last position
    is, and what it is.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    dims_by_denotation: Mapping[str, int] = field(default_factory=dict)
    initializers: Mapping[str, Array] = field(default_factory=dict)
    external: Mapping[str, Array] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    folder: str = ""
    last: tuple[str, ...] = ()
    likeliest: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        given = (self.dims, self.dims_by_denotation, self.initializers, self.external, self.files)
        return any((*given, self.folder, self.last, self.likeliest))

    def digest(self) -> str:
        """Changes with everything that the edits change; '' where there are none."""
        if not self:
            return ""
        found = hashlib.blake2b(repr((sorted(self.dims.items()), sorted(self.dims_by_denotation.items()))).encode())
        found.update(repr((self.folder, self.last, self.likeliest)).encode())
        for group in (self.initializers, self.external):
            for name, array in sorted(group.items()):
                found.update(repr((name, str(array.dtype), array.shape)).encode())
                found.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        for name, contents in sorted(self.files.items()):
            found.update(repr((name, len(contents))).encode())
            found.update(contents)
        return found.hexdigest()


def likeliest_name(output: str) -> str:
    """Of the output that tells where the largest number of `output` is."""
    return f"{output}/likeliest"


def largest_name(output: str) -> str:
    """Of the output that tells the largest number of `output`."""
    return f"{output}/largest"
