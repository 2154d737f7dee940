"""Where onnxruntime's result is not what the operator's definition says: each with its reason.

Longer than 400 lines: a list of quirks.

A quirk belongs to single nodes and to what they read. Where it applies, the node alone is computed in another way, by
onnx's reference evaluator or by onnxruntime from inputs that it takes rightly, and what follows is computed from that
(steps.py): so all the rest of a graph is judged as ever. Only where nothing else computes the node is what follows from
it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

import onnx
from onnx import helper

from .oracle import VERSION
from .protos import subgraphs
from .step import Array, Arrays, Step

Compute = Callable[[Step, Arrays], dict[str, Array]]
Applies = Callable[[Step, Any, Arrays, Arrays], bool]
Mend = Callable[[Step, Arrays, Arrays, Compute], dict[str, Array] | None]


@dataclass(frozen=True)
class Quirk:
    """applies: asked of a node with what its step has read and made. mend: gives the step's right outputs, or None
    where they cannot be had. until: the first version of onnxruntime that is without the quirk."""

    reason: str
    ops: Sequence[str]
    applies: Applies
    mend: Mend
    until: tuple[int, int] | None = None


# When


def reads_nan(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """A float that it reads is NaN. Of what lies in subgraphs nothing is known but what goes in and comes out."""
    if node not in step.nodes:
        return any(_has_nan(a) for a in (*inputs.values(), *outputs.values()))
    a = step.array(node, 0, inputs)
    return a is None or _has_nan(a)


def multiplies_a_turned_matrix_by_a_vector(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    vector = step.array(node, 1, inputs)
    turned = any(a.name == "transA" and a.i for a in node.attribute)
    return turned and (vector is None or vector.ndim == 1)


def is_told(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """The output's shape is given."""
    return len(node.input) > 2 and bool(node.input[2])


def reads_doubles(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    a = step.array(node, 0, inputs)
    return a is not None and a.dtype == np.float64


def picks_outside(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    scores, classes = (step.array(node, i, inputs) for i in (0, 1))
    return scores is not None and classes is not None and bool(((classes < 0) | (classes >= scores.shape[1])).any())


def pools_apart(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """Windows with gaps, padded by auto_pad."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return given.get("auto_pad", b"NOTSET").startswith(b"SAME") and max(given.get("dilations", [1]), default=1) > 1


def empty_from_the_end(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    a = step.array(node, 0, inputs)
    return node in step.nodes and a is not None and not a.size and any(i < 0 for i in _axes(step, node, inputs))


def beyond_integers(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """A float that the integer type does not hold, or NaN for a quantiser: the result is undefined."""
    a = step.array(node, 0, inputs)
    made = outputs.get(node.output[0])
    if node not in step.nodes or a is None or a.dtype.kind != "f" or not a.size:
        return False
    if node.op_type == "QuantizeLinear":
        return _has_nan(a)
    if made is None:  # 4 bits, or another type that NumPy does not have
        return True
    if made.dtype.kind not in "iu":
        return False
    bits = np.iinfo(made.dtype)
    return not np.isfinite(a).all() or bool(a.min() <= bits.min - 1.0 or a.max() >= bits.max + 1.0)


def power_beyond_integers(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """A power of integers that their type does not hold. Squares and cubes of rows by a constant wrap around."""
    a, e = step.array(node, 0, inputs), step.array(node, 1, inputs)
    if a is None or e is None:
        return node.op_type == "Pow" and any(x.dtype.kind in "iu" for x in inputs.values())
    if a.dtype.kind not in "iu":
        return False
    if node.input[1] in step.constants and e.size == 1 and a.shape[-1:] > (1,) and e.reshape(()) in (2, 3):
        return False
    with np.errstate(all="ignore"):
        found = a.astype(np.float64) ** e.astype(np.float64)
        return not (np.abs(found) < float(np.iinfo(a.dtype).max)).all()


def _has_nan(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f" and bool(np.isnan(a).any())


def reads_beyond_sums(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    """Something that it reads is not finite, or its products may not be."""
    if node not in step.nodes:
        return any(_has_nan(a) for a in (*inputs.values(), *outputs.values()))
    read = (step.array(node, i, inputs) for i in range(len(node.input)))
    with np.errstate(all="ignore"):
        return any(a is not None and a.dtype.kind == "f" and not (np.abs(a) < 1e18).all() for a in read)


def interpolates_what_is_not_finite(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    mode = next((a.s for a in node.attribute if a.name == "mode"), b"nearest")
    a = step.array(node, 0, inputs)
    return mode != b"nearest" and (a is None or not np.isfinite(a).all())


def squares_vanish(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    a = step.array(node, 0, inputs)
    return a is None or bool(np.any((a != 0) & (np.abs(a) < 1e-19)))


def cancels(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    return reads_beyond_sums(step, node, inputs, outputs) or varies_little(step, node, inputs, outputs)


def far_off_grid(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    grid = step.array(node, 1, inputs)
    with np.errstate(all="ignore"):
        return node in step.nodes and grid is not None and not (np.abs(grid) < 2**24).all()


def scatters_extremes(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    reduction = next((a.s for a in node.attribute if a.name == "reduction"), b"")
    read = (step.array(node, i, inputs) for i in (0, 2))
    return reduction in (b"max", b"min") and (node not in step.nodes or any(_has_nan(a) for a in read))


def varies_little(step: Step, node: Any, inputs: Arrays, outputs: Arrays) -> bool:
    a = step.array(node, 0, inputs)
    if node not in step.nodes or a is None or not a.size:
        return False
    axes = tuple(range(2, a.ndim))
    if node.op_type == "MeanVarianceNormalization":
        axes = tuple(_axes(step, node, inputs) or (0, 2, 3))
    with np.errstate(all="ignore"):
        wide = a.astype(np.float64)
        variance = wide.var(axes)
        tiny = node.op_type == "MeanVarianceNormalization" and bool((variance < 1e-12).any())  # the 1e-9 counts
        return tiny or bool((variance <= 1e-4 * np.square(wide).mean(axes)).any())


def _axes(step: Step, node: Any, inputs: Arrays) -> list[int]:
    for a in node.attribute:
        if a.name == "axes":
            return list(a.ints)
        if a.name == "axis":
            return [a.i]
    found = step.array(node, 1, inputs)
    return [] if found is None else [int(i) for i in np.ravel(found)]


# What then


def by_reference(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> dict[str, Array] | None:
    """onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(step.model(inputs)).run(None, dict(inputs))
    except Exception:  # whatever NumPy raises
        return None
    pairs = zip(step.outputs, found, strict=True)
    return {o: np.asarray(a).astype(outputs[o].dtype, copy=False) for o, a in pairs}


def nan_wins(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> dict[str, Array] | None:
    """The largest of numbers with a NaN among them is NaN. onnxruntime says which those are, and of the others."""
    node = step.nodes[0]
    if len(step.nodes) > 1 or node.input[0] not in inputs or len(node.output) > 1:
        return by_reference(step, inputs, outputs, compute)
    least = node.op_type == "ReduceMin"
    name, end = node.input[0], np.inf if least else -np.inf
    bad = np.isnan(inputs[name])
    rest = compute(step, {**inputs, name: np.where(bad, end, inputs[name]).astype(inputs[name].dtype)})
    mark = np.where(bad, -1.0 if least else 1.0, 0.0).astype(inputs[name].dtype)
    marked = compute(step, {**inputs, name: mark})
    return {o: np.where(np.abs(marked[o]) == 1, np.nan, a).astype(a.dtype) for o, a in rest.items()}


def numbers_win(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> dict[str, Array] | None:
    """The largest number of each window; nothing is said where one has no number."""
    name = step.nodes[0].input[0]
    if len(step.nodes) > 1 or name not in inputs:
        return None
    x = inputs[name]
    mark = np.where(np.isnan(x), 0.0, 1.0).astype(x.dtype)
    if not compute(step, {**inputs, name: mark})[step.outputs[0]].all():
        return None
    return compute(step, {**inputs, name: np.where(np.isnan(x), -np.inf, x).astype(x.dtype)})


def from_the_front(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> dict[str, Array] | None:
    """onnxruntime's own result for the same axes counted from the front."""
    node = onnx.NodeProto()
    node.CopyFrom(step.nodes[0])
    found = step.array(node, 0, inputs)
    assert found is not None
    axes = [i % found.ndim for i in _axes(step, node, inputs)]
    for a in node.attribute:
        if a.name == "axes":
            a.ints[:] = axes
            return compute(step.with_node(node), inputs)
        if a.name == "axis":
            a.i = axes[0]
            return compute(step.with_node(node), inputs)
    name = node.input[1]
    if name in inputs:
        return compute(step, {**inputs, name: np.asarray(axes, np.int64)})
    constants = {**step.constants, name: nph.from_array(np.asarray(axes, np.int64), name)}
    return compute(Step([node], step.inputs, step.outputs, constants, step.whole), inputs)


def mean_variance(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> dict[str, Array]:
    """(x - mean) / (standard deviation + 1e-9), in float64."""
    node = step.nodes[0]
    x = step.array(node, 0, inputs)
    assert x is not None
    axes = tuple(_axes(step, node, inputs) or (0, 2, 3))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        centred = wide - wide.mean(axes, keepdims=True)
        y = centred / (wide.std(axes, keepdims=True) + 1e-9)
    return {node.output[0]: y.astype(x.dtype)}


def across_channels(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> dict[str, Array]:
    """LRN in float64, each window summed by itself. onnx's reference evaluator forgets the last channels."""
    node = step.nodes[0]
    x = step.array(node, 0, inputs)
    assert x is not None
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    size = given["size"]
    with np.errstate(all="ignore"):
        squares = np.square(x.astype(np.float64))
        sums = [squares[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(1) for c in range(x.shape[1])]
        scale = given.get("bias", 1.0) + given.get("alpha", 1e-4) / size * np.stack(sums, 1)
        y = x / scale ** given.get("beta", 0.75)
    return {node.output[0]: y.astype(x.dtype)}


def leave_out(step: Step, inputs: Arrays, outputs: Arrays, compute: Compute) -> None:
    """Nothing is said of what follows."""


LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

KNOWN: tuple[Quirk, ...] = (
    Quirk(
        "onnxruntime takes indices of the smallest output for those of a larger one", ("MaxUnpool",), is_told, leave_out
    ),
    Quirk("onnxruntime turns doubles by sines of float32", ("DFT",), reads_doubles, by_reference),
    Quirk("a class that does not exist is read beside the scores", LOSSES, picks_outside, leave_out),
    Quirk(
        "onnxruntime reads the matrix as if it were not transposed",
        ("FusedMatMul",),
        multiplies_a_turned_matrix_by_a_vector,
        leave_out,
    ),
    Quirk(
        "onnxruntime pads as if the elements of a window were neighbours",
        ("MaxPool", "AveragePool", "LpPool"),
        pools_apart,
        leave_out,
    ),
    Quirk(
        "what a float becomes as an integer that cannot hold it is undefined, and a quantised NaN too",
        ("Cast", "CastLike", "QuantizeLinear"),
        beyond_integers,
        leave_out,
    ),
    Quirk("what a power beyond the integer type becomes is undefined", ("Pow",), power_beyond_integers, leave_out),
    Quirk(
        "the range of values with a NaN among them is undefined, and so what they are quantised by",
        ("DynamicQuantizeLinear",),
        reads_nan,
        leave_out,
    ),
    Quirk(
        "onnxruntime compares by max(a, b) of its vectors, which lose a NaN in one of the two places",
        ("GlobalMaxPool", "ReduceMax", "ReduceMin"),
        reads_nan,
        nan_wins,
    ),
    Quirk("onnxruntime subtracts a maximum that lost the NaN", ("ReduceLogSumExp",), reads_nan, by_reference),
    Quirk(
        "onnxruntime takes a NaN for less than any number in some window sizes, and not in others",
        ("MaxPool",),
        reads_nan,
        numbers_win,
    ),
    Quirk(
        "onnxruntime eliminates in another order than LAPACK, and infinity less infinity is NaN",
        ("Det",),
        reads_beyond_sums,
        by_reference,
    ),
    Quirk(
        "onnxruntime multiplies neighbours that have no part in a point by zero, which makes NaN of infinity",
        ("Resize", "Upsample"),
        interpolates_what_is_not_finite,
        leave_out,
    ),
    Quirk(
        "onnxruntime adds up squares below the smallest float, so that the norm of small numbers is 0",
        ("LpNormalization",),
        squares_vanish,
        leave_out,
    ),
    Quirk(
        "onnxruntime multiplies the first pixel by zero for samples that lie outside, which keeps its NaN",
        ("RoiAlign",),
        reads_nan,
        leave_out,
    ),
    Quirk(
        "onnxruntime compares a NaN as its algorithm meets it; NumPy, and so the reference, has it above all numbers",
        ("ArgMax", "ArgMin", "Hardmax"),
        reads_nan,
        by_reference,
    ),
    Quirk("onnxruntime sorted NaN as its algorithm met it", ("TopK",), reads_nan, by_reference, until=(1, 32)),
    Quirk(
        "onnxruntime scatters the larger of two by std::max, which loses a NaN in one of the two places",
        ("ScatterND", "ScatterElements"),
        scatters_extremes,
        by_reference,
    ),
    Quirk(
        "onnxruntime's sigmoid and tanh of NaN in recurrent layers are those of their limits, and whether zero times "
        "infinity counts in a sum is the library's own, in onnx's reference evaluator too",
        ("RNN", "GRU", "LSTM"),
        reads_beyond_sums,
        leave_out,
    ),
    Quirk(
        "onnxruntime adds what enters a window of channels and subtracts what leaves it: NaN and infinity stay",
        ("LRN",),
        reads_beyond_sums,
        across_channels,
    ),
    Quirk(
        "onnxruntime takes x * s + (b - mean * s), which cancels, and is NaN where s or b is infinite",
        ("InstanceNormalization",),
        cancels,
        by_reference,
    ),
    Quirk(
        "onnxruntime's mean of a row with an infinite number in it is NaN",
        ("LayerNormalization",),
        reads_beyond_sums,
        by_reference,
    ),
    Quirk(
        "onnxruntime makes an integer of every coordinate, also of one that integers cannot hold",
        ("GridSample",),
        far_off_grid,
        leave_out,
    ),
    Quirk(
        "onnxruntime takes the variance as E[x^2] - E[x]^2 and divides by it as it is, which may be 0 or below",
        ("MeanVarianceNormalization",),
        varies_little,
        mean_variance,
    ),
    Quirk(
        "onnxruntime does not count negative axes from the end where the tensor has no elements",
        (*REDUCTIONS, "ArgMax", "ArgMin"),
        empty_from_the_end,
        from_the_front,
    ),
)

PRESENT = tuple(q for q in KNOWN if q.until is None or q.until > VERSION)
"""Those of the onnxruntime that is installed."""


REFUSALS = {
    "k and v must agree in batch": "onnxruntime does not look at the batch of an Attention's v",
}
"""Parts of Opalite's sentences of other shapes that onnxruntime takes against the definition, with the reason."""


def find_quirk(step: Step, inputs: Arrays, outputs: Arrays) -> Quirk | None:
    """The first that applies to a node of `step` or of its subgraphs."""
    for node in inner_nodes(step.nodes):
        for quirk in PRESENT:
            if node.op_type in quirk.ops and quirk.applies(step, node, inputs, outputs):
                return quirk
    return None


def inner_nodes(nodes: Sequence[Any]) -> Iterator[Any]:
    """The nodes and those of their subgraphs."""
    for n in nodes:
        yield n
        for attribute in n.attribute:
            for graph in subgraphs(attribute):
                yield from inner_nodes(graph.node)
