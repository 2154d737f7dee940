"""A model computed node by node, each node alone by onnxruntime: every value on the way can be looked at and changed.

What onnxruntime is known to compute against the definition (known.py) is mended on the way, so that the values after it
are those of a right engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

import onnx
from onnx import helper

from .known import find_quirk
from .oracle import open_session
from .protos import copy_model, reads, scales_of, subgraphs
from .step import Step

Array = np.ndarray[Any, Any]
Hook = Callable[[Any, str, Array], Array]

NUMPY_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""onnxruntime's names of the types that it takes from NumPy and gives to it."""


def with_all_outputs(model: Any) -> Any:
    """The model with every tensor of the graph itself an output."""
    found = copy_model(model)
    known = {o.name for o in found.graph.output}
    made = [o for n in found.graph.node for o in n.output if o and o not in known]
    found.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in made)
    return found


class Values(dict[str, Any]):
    """All values of a run by name. tainted: reasons why some of them say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.tainted: dict[str, str] = {}


class Steps:
    """The nodes of a model in order, each to be run alone. What NumPy cannot hold (sequences, bfloat16) lies within a
    step of several nodes."""

    def __init__(self, model: Any) -> None:
        self._model = model
        whole = open_session(with_all_outputs(model))
        self.types = {v.name: v.type for v in (*whole.get_inputs(), *whole.get_outputs())}
        self._constants = {t.name: t for t in model.graph.initializer}
        for n in model.graph.node:
            if n.op_type == "Constant" and n.attribute[0].name == "value":
                tensor = onnx.TensorProto()
                tensor.CopyFrom(n.attribute[0].t)
                tensor.name = n.output[0]
                self._constants[tensor.name] = tensor
        self.steps = [self._step(nodes) for nodes in self._parts()]
        self._sessions: dict[Any, Any] = {}

    def _parts(self) -> list[list[Any]]:
        """Neighbouring nodes between which a value is that NumPy cannot hold."""
        nodes = [n for n in self._model.graph.node if n.output[0] not in self._constants]
        made = {o: i for i, n in enumerate(nodes) for o in n.output if self.types.get(o) not in (None, *NUMPY_TYPES)}
        joined = [False] * len(nodes)  # to the node before
        for i, n in enumerate(nodes):
            for r in reads(n):
                if r in made:
                    joined[made[r] + 1 : i + 1] = [True] * (i - made[r])
        parts: list[list[Any]] = []
        for n, join in zip(nodes, joined, strict=True):
            parts[-1].append(n) if join else parts.append([n])
        return parts

    def _step(self, nodes: Sequence[Any]) -> Step:
        made = {o for n in nodes for o in n.output if o}
        names = [i for i in dict.fromkeys(i for n in nodes for i in reads(n)) if i not in made]
        outputs = [o for n in nodes for o in n.output if o and self.types.get(o) in NUMPY_TYPES]
        # Inputs, as noise is put on them: it moves what is rounded to the integers of the result.
        scales = {i for n in nodes for i in scales_of(n)}
        constants = {i: self._constants[i] for i in names if i in self._constants and i not in scales}
        return Step(list(nodes), [i for i in names if i not in constants], outputs, constants, self._model)

    def run(
        self,
        feeds: Mapping[str, Array],
        before: Hook = lambda node, name, a: a,
        after: Hook = lambda node, name, a: a,
        wide: bool = False,
    ) -> Values:
        """All values. before, after: change what a node reads, and what it has made. wide: halves are kept in
        float32, as engines do that round only what they store."""
        values = Values()
        for name, a in feeds.items():
            values[name] = a.astype(np.float32) if wide and a.dtype == np.float16 else a
        for step in self.steps:
            for name in step.inputs:
                if name not in values:
                    values[name] = nph.to_array(self._constants[name])
            inputs = {i: before(step.nodes[0], i, values[i]) for i in step.inputs}
            found = self._compute(step, inputs, wide)
            reason = next((values.tainted[i] for i in step.inputs if i in values.tainted), "")
            quirk = find_quirk(step, inputs, found)
            if quirk is not None:
                better = quirk.mend(step, inputs, found, lambda s, i: self._compute(s, i, wide))
                reason = reason or ("" if better is not None else quirk.reason)
                found = found if better is None else better
            for name, a in found.items():
                values[name] = after(step.nodes[-1], name, a)
                if reason:
                    values.tainted[name] = reason
        for name, tensor in self._constants.items():
            values.setdefault(name, nph.to_array(tensor))
        return values

    def dtype(self, name: str) -> str | None:
        """NumPy's name of the type of a tensor, or 'bfloat16'; None of what is no float or integer."""
        if name in self._constants:
            kind = self._constants[name].data_type
            return "bfloat16" if kind == onnx.TensorProto.BFLOAT16 else str(helper.tensor_dtype_to_np_dtype(kind))
        kind = self.types.get(name, "")
        return "bfloat16" if kind == "tensor(bfloat16)" else NUMPY_TYPES.get(kind)

    def outputs(self, values: Values) -> list[Any]:
        """Those of the model, in their own types."""
        found = []
        for o in self._model.graph.output:
            dtype = NUMPY_TYPES.get(self.types[o.name])
            with np.errstate(all="ignore"):
                found.append(values[o.name].astype(dtype, copy=False) if dtype else None)
        return found

    def _compute(self, step: Step, inputs: Mapping[str, Array], wide: bool) -> dict[str, Array]:
        if not wide:
            return self._by_onnxruntime(step, inputs, False)
        try:
            return self._by_onnxruntime(step, inputs, True)
        except Exception:  # whatever onnxruntime raises: some operators know halves only
            with np.errstate(all="ignore"):
                own = {i: a.astype(NUMPY_TYPES.get(self.types.get(i, ""), a.dtype)) for i, a in inputs.items()}
            found = self._by_onnxruntime(step, own, False)
            return {o: a.astype(np.float32) if a.dtype == np.float16 else a for o, a in found.items()}

    def _by_onnxruntime(self, step: Step, inputs: Mapping[str, Array], wide: bool) -> dict[str, Array]:
        key = (id(step), wide, *((i, a.dtype, a.ndim) for i, a in inputs.items()))
        if key not in self._sessions:
            self._sessions[key] = step, open_session(step.model(inputs, widened if wide else lambda proto: proto))
        _, session = self._sessions[key]
        taken = [i.name for i in session.get_inputs()]
        return dict(zip(step.outputs, session.run(step.outputs, {i: inputs[i] for i in taken}), strict=True))


def widened(proto: Any) -> Any:
    """A node or tensor with float32 in the place of float16, its subgraphs included."""
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    if isinstance(proto, onnx.TensorProto):
        if proto.data_type != half:
            return proto
        return nph.from_array(nph.to_array(proto).astype(np.float32), proto.name)
    found = type(proto)()
    found.CopyFrom(proto)
    for a in found.attribute:
        if a.name in ("to", "dtype") and a.i == half:
            a.i = single
        if a.type == onnx.AttributeProto.TENSOR:
            a.t.CopyFrom(widened(a.t))
        for graph in subgraphs(a):
            for t in graph.initializer:
                t.CopyFrom(widened(t))
            for n in graph.node:
                n.CopyFrom(widened(n))
            for v in (*graph.input, *graph.output, *graph.value_info):
                if v.type.tensor_type.elem_type == half:
                    v.type.tensor_type.elem_type = single
    return found
