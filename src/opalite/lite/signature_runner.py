"""SignatureRunner: runs a signature of a file on named arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OpaliteError
from .tensor_details import describe

if TYPE_CHECKING:
    from .interpreter import Interpreter

Array = np.ndarray[Any, Any]


class SignatureRunner:
    """A signature as a function: runner(x=array) returns a dict of arrays. `Interpreter.get_signature_runner` makes it.

    Inputs may have any size that the model can run.
    """

    def __init__(self, interpreter: Interpreter | None = None, signature_key: str | None = None) -> None:
        if not interpreter:
            raise ValueError("None interpreter provided.")
        if not signature_key:
            raise ValueError("None signature_key provided.")
        found = interpreter.signatures.get(signature_key)
        if found is None:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        self._inputs, self._outputs = dict(sorted(found.inputs.items())), dict(sorted(found.outputs.items()))
        try:
            self._subgraph = interpreter.subgraph(found.subgraph)
        except OpaliteError as e:
            raise ValueError(str(e)) from e

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        """Run on arrays by name; returns the outputs by name."""
        if len(kwargs) != len(self._inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(self._inputs)} vs provided {len(kwargs)}"
            )
        arrays = {name: np.asarray(value) for name, value in kwargs.items()}
        for name, array in arrays.items():
            if name not in self._inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            self._subgraph.resize(self._inputs[name], array.shape)
        self._subgraph.allocate(infer=False)
        for name, array in arrays.items():
            self._subgraph.set(self._inputs[name], array)
        self._subgraph.invoke()
        return {name: self._result(i) for name, i in self._outputs.items()}

    def _result(self, i: int) -> Any:
        """Return output `i`. One that is an input too is copied: the next run writes to it."""
        found = self._subgraph.contents(i)
        if not found.ndim:
            return found[()]
        return found.copy() if i in self._subgraph.inputs else found

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Return the details of the inputs by name."""
        return self._describe(self._inputs)

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Return the details of the outputs by name."""
        return self._describe(self._outputs)

    def _describe(self, names: dict[str, int]) -> dict[str, dict[str, Any]]:
        s = self._subgraph
        return {name: describe(s.info(i), s.shapes.get(i, s.info(i).shape)) for name, i in names.items()}
