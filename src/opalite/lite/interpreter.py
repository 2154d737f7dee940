"""Interpreter: TensorFlow Lite's class of that name, on an OpenCL device."""

from __future__ import annotations

import enum
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ExtraError, OpaliteError, OptionError
from ..importer.tflite.read.file import TfliteFile, open_tflite
from ..ir.constants.model_file import ModelFile
from .delegates import ADVICE
from .delegates import Delegate as Delegate
from .delegates import load_delegate as load_delegate
from .experimental import OpResolverType
from .op_details import describe_operators
from .signature_runner import SignatureRunner
from .subgraph import Subgraph
from .tensor_details import describe

Array = np.ndarray[Any, Any]

_HELD = (
    "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or slice. Be sure "
    "to only hold the function returned from tensor() if you are using raw data access."
)


class _Memory:
    """Memory of an array, as NumPy's array interface gives it."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Interpreter:
    """Runs a .tflite file: set inputs, `invoke`, get outputs.

    interpreter = Interpreter("model.tflite")
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    result = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])

    Methods, numbers of tensors and exceptions are LiteRT's. Variables keep their values from one `invoke` to the next.
    Not thread-safe, as LiteRT's; InferenceSession is.
    """

    def __init__(
        self,
        model_path: str | None = None,
        model_content: bytes | None = None,
        experimental_delegates: Sequence[Any] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: Any = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        device: Any = None,
        precision: Any = None,
    ) -> None:
        """Open a file, by its path or contents.

        num_threads is checked, and the OpenCL driver decides. device, precision: as InferenceSession's. Raises
        ValueError for a file that is damaged or that holds operators without an implementation.
        """
        if num_threads is not None:
            if not isinstance(num_threads, int):
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
        if not isinstance(experimental_op_resolver_type, enum.Enum):
            raise ValueError(f"Unrecognized passed in op resolver type: {experimental_op_resolver_type}")
        if experimental_delegates:
            raise ValueError(f"delegates are given, which work in LiteRT's memory alone. {ADVICE}")
        if (model_path is None) == (model_content is None):
            raise ValueError(
                "`model_path` or `model_content` must be specified."
                if model_path is None
                else "Can't both provide `model_path` and `model_content`"
            )
        self._source: str | bytes = os.fsdecode(model_path) if model_path is not None else bytes(model_content or b"")
        self._arguments = {"device": device, "precision": precision}
        self._keeps_all = bool(experimental_preserve_all_tensors)
        self._compress = bool(experimental_compress_quantization_zero_points)
        self._variables: dict[str, Array] = {}
        self._subgraphs: dict[int, Subgraph] = {}
        self._lent: list[weakref.ref[Array]] = []
        with _as_value_error():
            self._file = _open(self._source)
            self._main = self.subgraph(0)

    def subgraph(self, index: int) -> Subgraph:
        """Return a subgraph of the file, ready to run."""
        if index not in self._subgraphs:
            self._subgraphs[index] = Subgraph(
                self._file, index, self._source, self._variables, self._arguments, self._keeps_all
            )
        return self._subgraphs[index]

    @property
    def experimental_compress_quantization_zero_points(self) -> bool:
        """The argument of that name, which has no effect."""
        return self._compress

    # Tensors

    def allocate_tensors(self) -> None:
        """Prepare for `invoke`; needed first, and after each change of an input's size."""
        self._check_unshared()
        self._main.allocate()

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return the details of all inputs: name, index, shape, dtype, quantisation and so on."""
        return [self._describe(i) for i in self._main.inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return the details of all outputs."""
        return [self._describe(i) for i in self._main.outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        """Return the details of all tensors of a subgraph."""
        if not 0 <= subgraph_index < self.num_subgraphs():
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {self.num_subgraphs()} "
                "subgraphs."
            )
        own = self._main if subgraph_index == 0 else None
        tensors = self._main.tensors if own is not None else self._file.reader.read(subgraph_index).tensors
        return [describe(t, t.shape if own is None else own.shapes.get(t.index, t.shape)) for t in tensors]

    def _describe(self, i: int) -> dict[str, Any]:
        return describe(self._main.info(i), self._main.shapes[i])

    # Private in LiteRT, too, but its users list operators by it.
    def _get_ops_details(self) -> list[dict[str, Any]]:
        return describe_operators(self._file.reader, self._main.tensors)

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy `value` into an input. ValueError for another type or size."""
        held = self._main.fed.get(tensor_index)
        fits = held is not None and type(value) is np.ndarray and value.dtype == held.dtype
        if held is not None and fits and value.shape == held.shape:
            held[...] = value
            return
        self._main.set(tensor_index, value)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Any:
        """Return a copy of an input, an output or a constant; of any result, if all are preserved.

        subgraph_index: of a subgraph that a signature runner has run.
        """
        if not subgraph_index and (known := self._main.held.get(tensor_index)) is not None and known.ndim:
            return known.copy()
        if subgraph_index and not 0 < subgraph_index < self.num_subgraphs():
            raise ValueError(f"Invalid subgraph index {subgraph_index}: the model has {self.num_subgraphs()} subgraphs")
        subgraph = self.subgraph(subgraph_index) if subgraph_index else self._main
        held = subgraph.contents(tensor_index)
        return held.copy() if held.ndim else held[()]

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """Return a function that gives the tensor's own memory; do not hold what it returns across `invoke`."""
        self._main.info(tensor_index)
        return lambda: self._lend(self._main.contents(tensor_index))

    def _lend(self, contents: Array) -> Array:
        """Return the same memory as an array that slices of it keep alive, so that a holder is noticed."""
        if contents.dtype == object:
            return contents.copy()
        lent = np.asarray(_Memory(contents))
        self._lent.append(weakref.ref(lent))
        return lent

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int], strict: bool = False) -> None:
        """Set the size of an input; `allocate_tensors` then prepares for it. strict: only of open dimensions."""
        self._check_unshared()
        self._main.resize(input_index, tensor_size, strict)

    # Runs

    def invoke(self) -> None:
        """Run the model on the inputs set before. RuntimeError if it fails."""
        if self._lent:
            self._check_unshared()
        self._main.invoke()

    def reset_all_variables(self) -> None:
        """Give the states of LSTM, RNN and SVDF their first values again; VAR_HANDLE's variables keep theirs."""
        for subgraph in self._subgraphs.values():
            subgraph.reset_states()

    def _check_unshared(self) -> None:
        """Raise RuntimeError if somebody holds memory that `tensor` gave."""
        if not self._lent:
            return
        self._lent = [r for r in self._lent if r() is not None]
        if self._lent:
            raise RuntimeError(_HELD)

    # Signatures

    def num_subgraphs(self) -> int:
        """Return the number of subgraphs."""
        return len(self._file.reader.graphs)

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs of each signature."""
        return {
            key: {"inputs": sorted(s.inputs), "outputs": sorted(s.outputs)} for key, s in self._file.signatures.items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return a function that runs a signature; None if the file has one alone."""
        signatures = self._file.signatures
        if signature_key is None:
            if len(signatures) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(signatures)} Signatures. None is only "
                    "allowed when the model has 1 SignatureDef"
                )
            signature_key = next(iter(signatures))
        return SignatureRunner(self, signature_key)

    @property
    def signatures(self) -> Mapping[str, Any]:
        """The file's signatures by key."""
        return self._file.signatures


def _open(source: str | bytes) -> TfliteFile:
    if isinstance(source, bytes):
        contents: bytes | ModelFile = source
    else:
        try:
            contents = ModelFile(Path(source))
        except OSError as e:
            raise ValueError(f"Could not open '{source}': {e.strerror or e}") from e
    head = contents.read(0, min(8, contents.size)).tobytes() if isinstance(contents, ModelFile) else contents[:8]
    if head[4:] != b"TFL3":
        raise ValueError("The model is not a valid Flatbuffer buffer: a .tflite file is expected")
    return open_tflite(contents, f"'{source}'" if isinstance(source, str) else "the model given as bytes")


@contextmanager
def _as_value_error() -> Iterator[None]:
    try:
        yield
    except ExtraError:
        raise
    except OpaliteError as e:
        raise ValueError(str(e)) from e


class InterpreterWithCustomOps(Interpreter):
    """An Interpreter; operators of one's own are registered by `opalite.kernel`, not by libraries for LiteRT."""

    def __init__(self, custom_op_registerers: Sequence[Any] | None = None, **arguments: Any) -> None:
        """Open a file. OptionError if there are registerers, which work in LiteRT's memory alone."""
        if custom_op_registerers:
            raise OptionError(
                f"{custom_op_registerers[0]!r} registers operators with LiteRT alone: implement them by opalite.kernel "
                "(docs/add-a-kernel.md)"
            )
        super().__init__(**arguments)
