"""Tasks: operators that run on the host between two segments, on arrays, lists of arrays or None.

A NodeTask runs one ONNX operator; loop_body_tasks.py has the tasks that run a loop body.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ModelError, OpaliteError, ShapeError
from ...ir.graph import Value
from ...ops.host import BY_PYTHON
from ..host.onnx_reference import host_reason, run_host
from ..proto.encode import make_proto
from .model_importer import ModelImporter
from .name_scopes import Item
from .symbolic_dims import STATIC_DIM, DimSpec, DynamicDim, symbolic_dims

Runner = Callable[[ModelImporter, Mapping[str, Any]], Sequence[Any]]
"""Runs an import: runner(importer, feeds) -> outputs in order. Feeds and outputs are arrays, lists of them or None."""

Values = Mapping[str, Any]


class Task(ABC):
    """One step on the host between two segments. `inputs` and `outputs` are global names."""

    reason: str

    def __init__(self, label: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.label = label
        self.inputs = inputs
        self.outputs = outputs

    @abstractmethod
    def run(self, values: Values, runner: Runner) -> list[Any]:
        """Return the outputs in the order of `outputs`, given the values of `inputs`."""

    def dynamic_dims(self, find: Callable[[str], Value | None]) -> dict[str, DimSpec]:
        """Return the data-dependent dimensions of the outputs, as far as known. find: returns the Value of a name."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"


def run_tasks(tasks: Sequence[Task], values: dict[str, Any], runner: Runner) -> None:
    """Run `tasks` in order; read inputs from `values` and store results there."""
    for task in tasks:
        results = task.run({n: values[n] for n in task.inputs}, runner)
        values.update((n, v) for n, v in zip(task.outputs, results, strict=False) if n)


class ItemTask(Task):
    """Task of one node."""

    def __init__(self, item: Item) -> None:
        super().__init__(item.node.label, item.reads, item.outputs)
        self.item = item

    def value(self, values: Values, i: int) -> Any:
        """Return the value of the node's input `i`, None if it is absent."""
        names = self.item.inputs
        return values[names[i]] if i < len(names) and names[i] else None


class ComputedTask(ItemTask):
    """Task whose errors name the node; missing outputs are None."""

    def run(self, values: Values, runner: Runner) -> list[Any]:
        try:
            found = self.compute(values, runner)
        except OpaliteError as e:
            e.add_context(f"while running {self.label}")
            raise
        except (ValueError, TypeError, IndexError, KeyError) as e:
            raise ModelError(f"{self.label} cannot run: {type(e).__name__}: {e}") from e
        return (found + [None] * len(self.outputs))[: len(self.outputs)]

    @abstractmethod
    def compute(self, values: Values, runner: Runner) -> list[Any]:
        """Compute the outputs of the node."""


STRING_PRODUCERS = frozenset(("Tokenizer", "StringSplit", "StringNormalizer", "StringConcat"))
"""Operators whose first output is a string tensor."""

STRING_RESHAPES = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"))
"""Operators that return their first input in another shape."""

STRING_OPERATORS = frozenset(("TfIdfVectorizer", "RegexFullMatch", *STRING_PRODUCERS))
"""String operators that run on the host only."""


class NodeTask(ItemTask):
    """Runs one ONNX operator on the host."""

    def __init__(self, item: Item) -> None:
        super().__init__(item)
        why = host_reason(item.node.op_type, item.node.domain)
        data = "its outputs' shapes depend on data, or it handles sequences or optionals"
        self.reason = f"{data}; {why}" if why.startswith(BY_PYTHON) else data

    @cached_property
    def proto(self) -> bytes:
        """Serialised NodeProto of the node."""
        return bytes(make_proto(self.item.node).SerializeToString())

    def dynamic_dims(self, find: Callable[[str], Value | None]) -> dict[str, DimSpec]:
        if self.item.node.op_type != "NonZero" or self.item.node.domain:
            return {}
        return {self.outputs[0]: [STATIC_DIM, DynamicDim(self.outputs[0])]}

    def outputs_strings(self, string_names: AbstractSet[str]) -> bool:
        """Whether the first output is a string tensor; `string_names` are the names of known string tensors."""
        kind = self.item.node.op_type
        return kind in STRING_PRODUCERS or (kind in STRING_RESHAPES and self.item.inputs[0] in string_names)

    def run(self, values: Values, runner: Runner) -> list[Any]:
        node = self.item.node
        ins = [self.value(values, i) for i in range(len(self.item.inputs))]
        try:
            found = iter(run_host(node.op_type, node.domain, node.version, self.proto, ins))
        except OpaliteError as e:
            e.add_context(f"while running {self.label}")
            raise
        return [next(found) if name else None for name in node.outputs]


class PackTask(Task):
    """Makes a host list of a sequence's elements."""

    reason = "the host holds a sequence as a list"

    def __init__(self, sequence: str, elements: tuple[str, ...]) -> None:
        super().__init__(f"sequence '{sequence}'", elements, (sequence,))

    def run(self, values: Values, runner: Runner) -> list[Any]:
        return [[values[n] for n in self.inputs]]


class TrimTask(Task):
    """Cuts an array to its first rows; another value gives their number."""

    reason = "the number of its rows depends on data"

    def __init__(self, item: Item, value: str, count: str, output: str) -> None:
        super().__init__(item.node.label, (value, count), (output,))

    def dynamic_dims(self, find: Callable[[str], Value | None]) -> dict[str, DimSpec]:
        value = find(self.inputs[0])
        if value is None:
            return {}
        rest = symbolic_dims(value.shape[1:])
        return {self.outputs[0]: [DynamicDim(self.inputs[1]), *rest]}

    def run(self, values: Values, runner: Runner) -> list[Any]:
        array, count = (values[n] for n in self.inputs)
        return [np.asarray(array)[: max(0, int(number_of(count)))]]


def number_of(value: Any) -> Any:
    """Return the one element of an iteration limit or condition."""
    array = np.asarray(value)
    if array.size != 1:
        raise ShapeError(f"an iteration limit or condition must hold one element, got shape {array.shape}")
    return array.reshape(()).item()
