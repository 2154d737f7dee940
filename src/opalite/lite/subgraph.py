"""Subgraph: a subgraph of a file with a session of its own, and the sizes and contents of its tensors now."""

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
from ..ir.constants.lazy_array import LazyArray
from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from ..run.api.options.session_options import OPEN_SIZES, SUBGRAPH, SessionOptions
from ..run.api.session.inference_session import InferenceSession
from .contents import as_bytes, as_text, blank

Array = np.ndarray[Any, Any]


class Subgraph:
    """A subgraph ready to run.

    inputs, outputs: numbers of its tensors, in order. shapes: sizes now of the inputs and outputs. held: contents now,
    by number. fed: those of inputs that set_tensor may write to directly. is_ready: whether tensors are allocated.
    """

    def __init__(
        self,
        file: TfliteFile,
        index: int,
        source: str | bytes,
        variables: MutableMapping[str, Array],
        arguments: Mapping[str, Any],
        keeps_all: bool = False,
    ) -> None:
        """source: the file's path or contents. variables: their values between runs, shared by the file's subgraphs.

        arguments: of the session. keeps_all: runs also keep the results of all operators.
        """
        self.index = index
        self._body = read_body(file, index, "the model")
        self._functions = file.reader.functions
        self._buffers = file.reader.buffers
        self._source, self._arguments, self._variables = source, arguments, variables
        self._sessions: dict[str, InferenceSession] = {}
        self._chosen: InferenceSession | None = None  # for the sizes now
        self.tensors: Sequence[TensorInfo] = self._body.tensors
        self.inputs, self.outputs = self._body.inputs, self._body.outputs
        self.shapes = {i: self.tensors[i].shape for i in (*self.inputs, *self.outputs)}
        self.held: dict[int, Array] = {}
        self.fed: dict[int, Array] = {}
        self._feeds: dict[str, Array] | None = None  # the inputs by name, unless an output replaces one of them
        self.is_ready = False
        self._names = [(i, self.tensors[i].value) for i in self.inputs]
        made = {name for node in self._body.graph.nodes for name in node.outputs} if keeps_all else frozenset[str]()
        # Handles are not results; outputs come anyway.
        self._inner = [
            t for t in self.tensors if t.value in made and t.dtype is not None and t.index not in self.outputs
        ]
        read = {v.name for v in self._body.reads}
        self._states = frozenset(t.value for t in self.tensors if t.is_variable and t.value in read)
        self._has_variables = bool(self._body.reads or self._body.writes)
        self._gives_strings = any(self.tensors[i].dtype is DType.STRING for i in self.outputs)
        self._session()  # operators that nothing knows are refused now

    def info(self, i: int) -> TensorInfo:
        """Return tensor `i`. ValueError if there is none."""
        if not 0 <= i < len(self.tensors):
            raise ValueError(f"Invalid tensor index {i} exceeds max tensor index {len(self.tensors)}")
        return self.tensors[i]

    # Contents

    def allocate(self, infer: bool = True) -> None:
        """Give inputs of new sizes zeros. infer: find the sizes of the outputs; RuntimeError if these do not fit."""
        if self.is_ready:
            return
        if infer:
            self._infer_outputs()
        self.reset_states()
        for i in self.inputs:
            if i not in self.held or self.held[i].shape != self.shapes[i]:
                self.held[i] = blank(self.info(i), self.shapes[i])
        self.held = {i: self.held[i] for i in self.inputs}
        self.fed = {i: a for i, a in self.held.items() if i not in self.outputs and a.dtype != object}
        self._feeds = self._named_inputs() if set(self.inputs).isdisjoint(self.outputs) else None
        self.is_ready = True

    def contents(self, i: int) -> Array:
        """Return the contents of tensor `i`: an input, output, state or constant, or what `keeps_all` has kept."""
        info = self.info(i)
        if i in self.held:
            return self.held[i]
        if i in self.shapes:
            if not self.is_ready:
                raise ValueError("Tensor data is null. Run allocate_tensors() first")
            self.held[i] = blank(info, self.shapes[i])
            return self.held[i]
        if info.value in self._states:
            return self._state(info.value)
        constant = self._buffers.constant(info)
        if constant is None:
            raise ValueError(
                f"Tensor data is null: '{info.name}' ({i}) is neither input, output nor constant, and operators are "
                "fused on the device: experimental_preserve_all_tensors keeps it, once invoked"
            )
        return constant.read() if isinstance(constant, LazyArray) else constant

    def set(self, i: int, value: Any) -> None:
        """Copy `value` into input or state `i`. ValueError if it is neither, or for another type or size."""
        if (state := self.info(i).value) in self._states:
            self._variables[state] = np.array(self._check(i, value), self._state(state).dtype)
            return
        if i not in self.inputs:
            name = self.info(i).name
            raise ValueError(f"Cannot set tensor: '{name}' ({i}) is no input, but one of {tuple(self.inputs)} is")
        array = self._check(i, value)
        if not self.is_ready:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        self.held[i][...] = array

    def _check(self, i: int, value: Any) -> Array:
        info, array, shape = self.info(i), np.asarray(value), self.shapes.get(i, self.info(i).shape)
        if info.dtype is DType.STRING:
            array = as_text(array)
        elif info.dtype is None or array.dtype.newbyteorder("=") != info.dtype.np:
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

    # Sizes

    def resize(self, i: int, shape: Any, strict: bool = False) -> None:
        """Set the sizes of input `i`. RuntimeError if it is none, or for sizes that `strict` forbids."""
        given = np.asarray(shape, np.int32)
        if given.ndim != 1:
            raise ValueError(f"Shape should be 1D instead of {given.ndim}.")
        if i not in self.inputs:
            raise RuntimeError(
                f"tensor {i} is no input of the model: its inputs are {', '.join(map(str, self.inputs))}"
            )
        sizes, info = tuple(given.tolist()), self.tensors[i]
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
        if sizes != self.shapes[i]:
            self.shapes[i] = sizes
            self._chosen, self.is_ready, self.fed = None, False, {}
            self.held.pop(i, None)

    def _infer_outputs(self) -> None:
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

    def _dtype(self, i: int) -> DType:
        dtype = self.tensors[i].dtype
        if dtype is None:
            raise InputError(f"input {i}, '{self.tensors[i].name}', is a handle")
        return dtype

    # Runs

    def reset_states(self) -> None:
        """Give states of operators, which are variables as tensors, their first values again."""
        for name in self._states:
            self._variables.pop(name, None)

    def _state(self, name: str) -> Array:
        """Return the value of a variable now."""
        kept = self._variables.get(name)
        return np.asarray(self._body.graph.constants[name + PAST]) if kept is None else kept

    def invoke(self) -> None:
        """Run on the inputs; the outputs and variables then have new contents. RuntimeError if it fails."""
        if not self.is_ready:
            raise RuntimeError("Invoke called on model that is not ready.")
        try:
            found = self._run()
        except OpaliteError as e:
            raise RuntimeError(f"the model failed: {e}") from e
        held, shapes = self.held, self.shapes
        for i, array in zip(self.outputs, found):  # noqa: B905 - `strict` takes 0.1 us of a run of 5
            held[i], shapes[i] = array, array.shape

    def _named_inputs(self) -> dict[str, Array]:
        return {name: self.held[i] for i, name in self._names}

    def _run(self) -> list[Array]:
        session = self._chosen or self._session()
        feeds = self._named_inputs() if self._feeds is None else self._feeds
        if not (self._has_variables or self._inner or self._gives_strings):
            return session.run(None, feeds)
        if self._has_variables:
            found = self._run_with_variables(session, dict(feeds))
        else:
            found = session.run(self._asked(session) if self._inner else None, feeds)
        if self._inner:
            count = len(self.outputs)
            self.held.update(zip((t.index for t in self._inner), found[count:], strict=True))
            found = found[:count]
        return [as_bytes(a) for a in found] if self._gives_strings else found

    def _asked(self, session: InferenceSession) -> list[str] | None:
        """Return the names of all results that a run keeps; None for the outputs alone."""
        return [v.name for v in session.get_outputs()] + [t.value for t in self._inner] if self._inner else None

    def _run_with_variables(self, session: InferenceSession, feeds: dict[str, Array]) -> list[Array]:
        for v in self._body.reads:
            feeds[v.name + PAST] = self._state(v.name)
        found = session.run(self._asked(session), feeds)
        begin, end = len(self.outputs), len(self.outputs) + len(self._body.writes)
        self._variables.update(zip((v.name for v in self._body.writes), found[begin:end], strict=True))
        return found[:begin] + found[end:]

    def _session(self) -> InferenceSession:
        """Return the session for the inputs' sizes now: one with open sizes, or ranks, where the file has others."""
        pairs = [(self.shapes[i], self.tensors[i].signature) for i in self.inputs]
        if any(len(now) != len(declared) for now, declared in pairs):
            opened = "ranks"
        elif any(s not in (None, d) for now, declared in pairs for d, s in zip(now, declared, strict=True)):
            opened = "1"
        else:
            opened = "0"
        if opened not in self._sessions:
            options = SessionOptions()
            if self.index:
                options.add_session_config_entry(SUBGRAPH, str(self.index))
            options.add_session_config_entry(OPEN_SIZES, opened)
            self._sessions[opened] = InferenceSession(self._source, options, **self._arguments)
        self._chosen = self._sessions[opened]
        return self._chosen


def _no_bodies(body: Any, feeds: Mapping[str, Any]) -> Sequence[Any]:
    raise OpaliteError("the host runs the body of a loop")
