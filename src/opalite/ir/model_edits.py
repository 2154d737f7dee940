"""ModelEdits, a caller's changes to a model, which importer/proto/apply_edits.py applies; ModelMetadata of its file."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import field

from ..errors import InputError
from ..lazy_dataclass import dataclass
from .constants.lazy_array import Array


@dataclass(frozen=True)
class ModelEdits:
    """Sizes for open input dimensions, replacement initializers, and reduced outputs.

    dims: sizes by symbol. dims_by_denotation: sizes by denotation ('DATA_BATCH'). initializers: replacement arrays by
    name. external: arrays in place of initializers that refer to a data file. files: contents of data files by
    location. folder: the folder of data files, by default the model's. last: outputs [batch, positions, ...] reduced to
    their last position, [batch, 1, ...]. argmax: outputs [batch, positions, n] with two added outputs, [batch, 1]
    each: the index of the largest number at the last position (argmax) and the number. outputs: names of any values,
    which become the outputs in place of the model's. subgraph: of a .tflite file, a
    number or a signature's name. open_sizes: all sizes of its inputs are open; open_ranks:
    then also their numbers of dimensions. params: the file with the parameters of
    a Paddle program.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    dims_by_denotation: Mapping[str, int] = field(default_factory=dict)
    initializers: Mapping[str, Array] = field(default_factory=dict)
    external: Mapping[str, Array] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    folder: str = ""
    last: tuple[str, ...] = ()
    argmax: tuple[str, ...] = ()
    subgraph: str = ""
    open_sizes: bool = False
    open_ranks: bool = False
    params: str = ""
    outputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        given = (self.dims, self.dims_by_denotation, self.initializers, self.external, self.files, self.outputs)
        return any((*given, self.folder, self.last, self.argmax, self.subgraph, self.open_sizes, self.params))

    def digest(self) -> str:
        """Digest of all edits; '' if there are none."""
        if not self:
            return ""
        found = hashlib.blake2b(repr((sorted(self.dims.items()), sorted(self.dims_by_denotation.items()))).encode())
        found.update(repr((self.folder, self.last, self.argmax)).encode())
        if self.open_ranks:
            found.update(b"open ranks")
        if self.subgraph or self.open_sizes:
            found.update(repr((self.subgraph, self.open_sizes)).encode())
        if self.params:
            found.update(repr(self.params).encode())
        if self.outputs:
            found.update(repr(("outputs", self.outputs)).encode())
        for group in (self.initializers, self.external):
            for name, array in sorted(group.items()):
                found.update(repr((name, str(array.dtype), array.shape)).encode())
                found.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        for name, contents in sorted(self.files.items()):
            found.update(repr((name, len(contents))).encode())
            found.update(contents)
        return found.hexdigest()


def unknown_value(name: str, known: Iterable[str], outputs: Iterable[str], inner: Container[str] = ()) -> InputError:
    """An error for an output that is none of the values `known`. inner: values in bodies of control flow."""
    if name in inner:
        return InputError(
            f"no output is named {name!r} in the main graph: it is a value in the body of an If, a Loop or a Scan, "
            "which may have many values in a run; name a value that the node gives"
        )
    near = difflib.get_close_matches(name, list(known), 3)
    guess = f"; values with names like it are {', '.join(near)}" if near else ""
    return InputError(
        f"no output is named {name!r}, nor any other value; the model's outputs are {', '.join(outputs)}{guess}"
    )


def argmax_name(output: str) -> str:
    """Name of the added output with the argmax of `output`."""
    return f"{output}/argmax"


def max_name(output: str) -> str:
    """Name of the added output with the largest number of `output`."""
    return f"{output}/max"


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata fields of a model file."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)
