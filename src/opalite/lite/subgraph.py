"""Subgraph: a subgraph of a file with a session of its own, its inputs and outputs, and their sizes now."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, OpaliteError
from ..importer import ContentsNeededError, ImportRun, ModelImporter
from ..importer.tflite.read.bodies import PAST
from ..importer.tflite.read.file import TfliteFile, read_body
from ..importer.tflite.read.tensors import TensorInfo
from ..importer.walk.segments import GraphOutput
from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from ..run.api.options.session_options import OPEN_SIZES, SUBGRAPH, SessionOptions
from ..run.api.session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]


class Subgraph:
    """A subgraph ready to run.

    inputs, outputs: numbers of its tensors, in order. shapes: sizes now of the inputs and outputs. variables: values of
    the file's variables between runs, shared by its subgraphs.
    """

    def __init__(
        self,
        file: TfliteFile,
        index: int,
        source: str | bytes,
        variables: MutableMapping[str, Array],
        arguments: Mapping[str, Any],
    ) -> None:
        """source: the file's path or contents. arguments: of the session."""
        self.index = index
        self._body = read_body(file, index, "the model")
        self._functions = file.reader.functions
        self._source, self._arguments, self._variables = source, arguments, variables
        self._sessions: dict[bool, InferenceSession] = {}
        self._chosen: InferenceSession | None = None  # for the sizes now
        self.tensors: Sequence[TensorInfo] = self._body.tensors
        self.inputs, self.outputs = self._body.inputs, self._body.outputs
        self.shapes = {i: self.tensors[i].shape for i in (*self.inputs, *self.outputs)}
        self._names = [(i, self.tensors[i].value) for i in self.inputs]
        self._has_variables = bool(self._body.reads or self._body.writes)
        self._gives_strings = any(self.tensors[i].dtype is DType.STRING for i in self.outputs)
        self._session()  # operators that nothing knows are refused now

    def info(self, i: int) -> TensorInfo:
        """Return tensor `i`. ValueError if there is none."""
        if not 0 <= i < len(self.tensors):
            raise ValueError(f"Invalid tensor index {i} exceeds max tensor index {len(self.tensors)}")
        return self.tensors[i]

    def check(self, i: int, value: Any) -> Array:
        """Return `value` as contents of input `i`, in its size now. ValueError if type or sizes differ."""
        info, array, shape = self.info(i), np.asarray(value), self.shapes[i]
        if info.dtype is DType.STRING:
            array = _as_text(array)
        elif info.dtype is None or array.dtype != info.dtype.np:
            raise ValueError(
                f"Cannot set tensor: Got value of type {array.dtype.name.upper()} but expected type "
                f"{'RESOURCE' if info.dtype is None else info.dtype.np.name.upper()} for input {i}, name: {info.name}"
            )
        if array.ndim != len(shape):
            raise ValueError(
                f"Cannot set tensor: Dimension mismatch. Got {array.ndim} but expected {len(shape)} for input {i}."
            )
        for axis, (got, wanted) in enumerate(zip(array.shape, shape, strict=True)):
            if got != wanted:
                raise ValueError(
                    f"Cannot set tensor: Dimension mismatch. Got {got} but expected {wanted} for dimension {axis} of "
                    f"input {i}."
                )
        return array

    def resize(self, i: int, shape: Sequence[int], strict: bool = False) -> None:
        """Set the sizes of input `i`. RuntimeError if it is none, or for sizes that `strict` forbids."""
        if i not in self.inputs:
            raise RuntimeError(
                f"tensor {i} is no input of the model: its inputs are {', '.join(map(str, self.inputs))}"
            )
        sizes, info = tuple(int(d) for d in shape), self.tensors[i]
        if any(d < 0 for d in sizes):
            raise RuntimeError(f"input {i}, '{info.name}', cannot have the sizes {sizes}: they must not be negative")
        if strict and len(sizes) != len(info.signature):
            raise RuntimeError(f"input {i}, '{info.name}', has {len(info.signature)} dimensions, not {len(sizes)}")
        for axis, (new, old) in enumerate(zip(sizes, info.signature, strict=False) if strict else ()):
            if old not in (None, new):
                raise RuntimeError(
                    f"Attempting to resize dimension {axis} of tensor {i} with value {old} to {new}. "
                    "ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
                )
        self.shapes[i] = sizes
        self._chosen = None

    def infer_outputs(self) -> None:
        """Set the sizes of the outputs from those of the inputs, where they follow. RuntimeError if they do not fit."""
        if all(self.shapes[i] == self.tensors[i].shape for i in self.inputs):
            self.shapes.update((i, self.tensors[i].shape) for i in self.outputs)
            return
        graph = self._body.graph
        feeds = {self.tensors[i].value: TensorType(self._dtype(i), self.shapes[i]) for i in self.inputs}
        try:
            run = ImportRun(ModelImporter(graph, self._functions, symbols=False), feeds, _no_bodies)
        except ContentsNeededError:
            return
        except OpaliteError as e:
            raise RuntimeError(f"inputs of these sizes cannot be run: {e}") from e
        segment = run.segment
        for i, out in zip(self.outputs, graph.outputs, strict=False):
            found = None if segment is None else segment.exports.get(out.name)
            if segment is not None and isinstance(found, GraphOutput):
                self.shapes[i] = tuple(int(d) for d in segment.graph.outputs[found.index].shape)

    def run(self, values: Mapping[int, Array]) -> list[Array]:
        """Run on the inputs' values; returns the outputs in order, and keeps the variables."""
        session = self._chosen or self._session()
        feeds = {name: values[i] for i, name in self._names}
        if self._has_variables:
            found = self._run_with_variables(session, feeds)
        else:
            found = session.run(None, feeds)
        for i, array in zip(self.outputs, found, strict=True):
            self.shapes[i] = array.shape
        return [_as_bytes(a) for a in found] if self._gives_strings else found

    def _run_with_variables(self, session: InferenceSession, feeds: dict[str, Array]) -> list[Array]:
        first = self._body.graph.constants
        for v in self._body.reads:
            kept = self._variables.get(v.name)
            feeds[v.name + PAST] = first[v.name + PAST] if kept is None else kept
        found = session.run(None, feeds)
        count = len(self.outputs)
        self._variables.update(zip((v.name for v in self._body.writes), found[count:], strict=True))
        return found[:count]

    def _dtype(self, i: int) -> DType:
        dtype = self.tensors[i].dtype
        if dtype is None:
            raise InputError(f"input {i}, '{self.tensors[i].name}', is a handle")
        return dtype

    def _session(self) -> InferenceSession:
        """Return the session for the inputs' sizes now: one with open sizes where the file has others."""
        is_open = any(
            len(self.shapes[i]) != len(self.tensors[i].signature)
            or any(s not in (None, d) for d, s in zip(self.shapes[i], self.tensors[i].signature, strict=True))
            for i in self.inputs
        )
        if is_open not in self._sessions:
            options = SessionOptions()
            if self.index:
                options.add_session_config_entry(SUBGRAPH, str(self.index))
            if is_open:
                options.add_session_config_entry(OPEN_SIZES, "1")
            self._sessions[is_open] = InferenceSession(self._source, options, **self._arguments)
        self._chosen = self._sessions[is_open]
        return self._chosen


def _no_bodies(body: Any, feeds: Mapping[str, Any]) -> Sequence[Any]:
    raise OpaliteError("the host runs the body of a loop")


def _as_text(array: Array) -> Array:
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1)]
    return found


def _as_bytes(array: Array) -> Array:
    if array.dtype != object:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [v.encode() if isinstance(v, str) else v for v in array.reshape(-1)]
    return found
