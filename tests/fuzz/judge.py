"""Whether two results may be called equal, and where they may not, whose fault it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

import onnx
from onnx import helper
from opalite.ir import DType
from opalite.ir.tolerances import tolerance

from .known import known_deviation
from .oracle import open_session, run_model
from .protos import copy_model, reads

Array = np.ndarray[Any, Any]

ORDER = ("float64", "float32", "float16")  # from the finest on; bfloat16 counts as float16
ROUNDING = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3}
"""Relative noise put on every intermediate value when results differ: a few units in the last place."""

LEAST = {"float64": 0.0, "float32": 0.0, "float16": 6e-8}
"""Noise that is there anyway: the step of the least numbers of 16 bits, which graphs do come down to."""

TRIES = 10
ROOM = 10.0
"""By how many times a difference may exceed the spread that noise makes onnxruntime's own results have."""


class Fault(Exception):  # noqa: N818  (what a campaign looks for)
    """Something that is wrong. kind: one word, by which a fault is the same while its graph shrinks."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


@dataclass(frozen=True)
class Difference:
    """Why two arrays are not equal: `kind` is type, shape, nan, inf or value."""

    kind: str
    text: str


def compare(want: Any, got: Any, coarse: str = "float32") -> Difference | None:
    """What differs beyond tolerance. coarse: the coarsest float type that had part in the result."""
    if isinstance(want, list) or not isinstance(got, np.ndarray):
        return None if type(want) is type(got) else Difference("type", f"expected {type(want)}, got {type(got)}")
    if want.shape != got.shape:
        return Difference("shape", f"expected {want.shape}, got {got.shape}")
    if want.dtype != got.dtype:
        return Difference("type", f"expected {want.dtype}, got {got.dtype}")
    for kind, bad in _differences(want, got, coarse):
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            share = f"{int(bad.sum())} of {bad.size}"
            return Difference(kind, f"at {at}: expected {want[at]!r}, got {got[at]!r} ({share})")
    return None


def _differences(want: Array, got: Array, coarse: str) -> list[tuple[str, Array]]:
    if want.dtype.kind not in "f":
        return [("value", np.asarray(want != got))]
    w, g = want.astype("f8"), got.astype("f8")
    nans = np.isnan(w) != np.isnan(g)
    with np.errstate(all="ignore"):
        infinite = (np.isinf(w) | np.isinf(g)) & (w != g) & ~np.isnan(w) & ~np.isnan(g)
        off = np.abs(w - g) > allowance(want, coarse)
    return [
        ("nan", nans),
        ("inf", infinite & ~_at_the_edge(want, w, g)),
        ("value", off & np.isfinite(w) & np.isfinite(g)),
    ]


def _at_the_edge(want: Array, w: Array, g: Array) -> Array:
    """Beside the largest number of the type, rounding decides whether it is infinite."""
    top = float(np.finfo(want.dtype).max)
    return (np.abs(w) > 0.9 * top) & (np.abs(g) > 0.9 * top) & (np.sign(w) == np.sign(g))


def allowance(want: Array, coarse: str) -> Array:
    """The largest difference of each element: a part of its own magnitude, and one of the tensor's."""
    kind = max(str(want.dtype), coarse, key=ORDER.index)
    dtype = DType[kind.upper()]
    finite = np.abs(np.where(np.isfinite(want), want, 0).astype("f8"))
    # Large values (masks of -1e30) would forgive everything: the share is that of common magnitudes.
    top = float(min(finite.max(initial=0.0), 100 * np.median(finite) if finite.size else 0.0))
    return np.asarray(tolerance("model", dtype) * finite + tolerance("node", dtype) * max(top, 1e-3))


_NORMS = ("LayerNormalization", "GroupNormalization", "RMSNormalization", "MeanVarianceNormalization", "LRN")
_NORMS += ("BatchNormalization", "InstanceNormalization")
_FUNCTIONS = ("Shrink", "HardSwish", "HardSigmoid", "Gelu", "Elu", "Celu", "Selu", "ThresholdedRelu", "LeakyRelu")
IN_FLOAT = frozenset((*_NORMS, *_FUNCTIONS, "Softplus", "Mish", "Attention"))
"""Operators that compute doubles too in float32: by their `stash_type`, or with onnxruntime's constants of float32."""


def coarsest(model: Any, dtypes: Mapping[str, str]) -> dict[str, str]:
    """The coarsest float type among all that each tensor is computed from."""
    found: dict[str, str] = {}

    def own(name: str) -> str:
        kind = dtypes.get(name, "float32")
        return "float16" if kind == "bfloat16" else kind if kind in ORDER else "float64"

    for v in (*model.graph.input, *model.graph.initializer):
        found[v.name] = own(v.name)
    for n in model.graph.node:
        ins = [found.get(i, "float64") for i in reads(n)]
        if n.op_type in IN_FLOAT:
            ins.append("float32")
        for o in n.output:
            found[o] = max([own(o), *ins], key=ORDER.index)
    return found


_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
}


class Oracle:
    """onnxruntime's results for one model, and the judgement of others."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.session = open_session(model)
        self.names = [o.name for o in model.graph.output]
        self._coarse: dict[str, str] | None = None
        self._types: dict[str, str] = {}

    def run(self, feeds: Mapping[str, Array]) -> list[Any]:
        """Outputs; whatever onnxruntime raises where it does not take the feeds."""
        return list(self.session.run(None, dict(feeds)))

    def types(self) -> dict[str, str]:
        """onnxruntime's names of the types of all tensors of the graph itself."""
        if not self._types:
            session = open_session(with_all_outputs(self.model))
            self._types = {v.name: _TYPES.get(v.type, v.type) for v in (*session.get_inputs(), *session.get_outputs())}
            self._types |= {t.name: _TYPES.get(f"tensor({_word(t)})", "other") for t in self.model.graph.initializer}
        return self._types

    def coarse(self, name: str) -> str:
        if self._coarse is None:
            self._coarse = coarsest(self.model, self.types())
        return self._coarse.get(name, "float32")

    def judge(
        self, feeds: Mapping[str, Array], want: Sequence[Any], got: Sequence[Any], where: str, half: bool = False
    ) -> None:
        """Fault where `got` is not `want` and onnxruntime is sure of it. half: the values were stored in halves."""
        if len(want) != len(got):
            raise Fault("count", f"{where}: expected {len(want)} outputs, got {len(got)}")
        found = [
            (n, w, g) for n, w, g in zip(self.names, want, got, strict=True) if compare(w, g, "float64") is not None
        ]
        coarse = {n: "float16" if half else self.coarse(n) for n, _, _ in found}
        wrong = [(n, w, g, d) for n, w, g in found if (d := compare(w, g, coarse[n])) is not None]
        if not wrong or self._agrees_optimised(feeds, got, half):
            return
        if undefined_cast(self.model, feeds):
            return
        if all(d.kind in ("value", "nan", "inf") for _, _, _, d in wrong):
            wrong = self._stable(feeds, want, wrong, half)
        elif all(d.kind == "shape" for _, _, _, d in wrong) and self.shapes_move(feeds, half):
            return
        if not wrong or known_deviation(self.model, feeds, [n for n, *_ in wrong]):
            return
        name, _, _, difference = wrong[0]
        vote = self._vote(feeds, got, half)
        raise Fault(difference.kind, f"{where}: output '{name}' {difference.text}{vote}")

    def _agrees_optimised(self, feeds: Mapping[str, Array], got: Sequence[Any], half: bool) -> bool:
        """Whether onnxruntime gives these results with its optimisations on: then it does not agree with itself."""
        try:
            other = run_model(self.model, feeds, optimised=True)
        except Exception:  # whatever onnxruntime raises
            return False
        pairs = zip(self.names, other, got, strict=True)
        return all(compare(w, g, "float16" if half else self.coarse(n)) is None for n, w, g in pairs)

    def _noisy(self, feeds: Mapping[str, Array], half: bool) -> list[list[Any]]:
        """Outputs of runs with noise on every intermediate value; [] where noise makes the model invalid."""
        return noisy_runs(self.model, feeds, self.types(), half)

    def shapes_move(self, feeds: Mapping[str, Array], half: bool = False) -> bool:
        """Whether rounding decides on the shapes of outputs, or on whether the model runs at all."""
        runs = self._noisy(feeds, half)
        return not runs or any(a.shape != b.shape for run in runs for a, b in zip(run, runs[0], strict=True))

    def _stable(
        self, feeds: Mapping[str, Array], want: Sequence[Any], wrong: Sequence[Any], half: bool
    ) -> list[tuple[str, Array, Array, Difference]]:
        """Those of `wrong` that noise does not explain."""
        runs = self._noisy(feeds, half)
        if not runs:
            return []
        found = []
        for name, w, g, d in wrong:
            i = self.names.index(name)
            others = [run[i] for run in runs]
            if any(o.shape != w.shape for o in others):
                continue
            if not explained(w, g, others, "float16" if half else self.coarse(name)):
                found.append((name, w, g, d))
        return found

    def _vote(self, feeds: Mapping[str, Array], got: Sequence[Any], half: bool) -> str:
        """What onnx's reference evaluator says."""
        from onnx.reference import ReferenceEvaluator

        if sum(a.size for a in feeds.values()) > 20_000:
            return ""
        try:
            with np.errstate(all="ignore"):
                other = ReferenceEvaluator(self.model).run(None, dict(feeds))
        except Exception as e:  # whatever NumPy raises
            return f" [onnx's reference fails: {type(e).__name__}]"
        pairs = list(zip(self.names, other, got, strict=True))
        agrees = all(compare(np.asarray(w), g, "float16" if half else self.coarse(n)) is None for n, w, g in pairs)
        return " [onnx's reference agrees with Opalite]" if agrees else " [onnx's reference differs]"


def explained(want: Array, got: Array, others: Sequence[Array], coarse: str) -> bool:
    """Whether the spread of noisy runs covers what differs.

    An element may stand on an edge that ten tries did not take it over: half as many as were seen to move may have.
    """
    if want.dtype.kind != "f":
        moved = np.any([o != want for o in others], axis=0)
        left = np.asarray(want != got) & ~moved
    else:
        w, g = want.astype("f8"), got.astype("f8")
        runs = [o.astype("f8") for o in others]
        allowed = allowance(want, coarse)
        with np.errstate(all="ignore"):
            other = [(o != w) & ~(np.isnan(o) & np.isnan(w)) & ~(np.isfinite(o) & np.isfinite(w)) for o in runs]
            special = np.any(other, axis=0)
            spread = np.max([np.nan_to_num(np.abs(o - w), nan=0.0, posinf=1e300) for o in runs], axis=0)
            same = (w == g) | (np.isnan(w) & np.isnan(g))
            near = np.abs(w - g) <= allowed + ROOM * spread
        moved = (spread > allowed) | special
        left = ~(same | special | near)
    return 2 * int(left.sum()) <= int(moved.sum())


SUMS = frozenset(
    (
        "Add", "Sub", "Sum", "Mean", "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "CumSum", "AveragePool",
        "GlobalAveragePool", "LpPool", "GlobalLpPool", "Resize", "Upsample", "GridSample", "RoiAlign",
        "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization",
        "RMSNormalization", "MeanVarianceNormalization", "LpNormalization", "LRN", "Softmax", "LogSoftmax",
        "LSTM", "GRU", "RNN", "Attention", "Det", "Mod", "RotaryEmbedding", "ReduceSum", "ReduceMean", "ReduceL1",
        "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "QLinearConv", "DequantizeLinear",
        "ScatterElements", "ScatterND", "Loop", "Scan", "If",
    )
)  # fmt: skip
"""Operators that sum, so that a result near zero has the error of its terms."""


def with_all_outputs(model: Any) -> Any:
    """The model with every tensor of the graph itself an output."""
    found = copy_model(model)
    known = {o.name for o in found.graph.output}
    made = [o for n in found.graph.node for o in n.output if o and o not in known]
    found.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in made)
    return found


def noisy_runs(model: Any, feeds: Mapping[str, Array], types: Mapping[str, str], half: bool) -> list[list[Any]]:
    """Outputs of TRIES runs in which every float that an input or a node gives is off by a rounding error or two."""
    rng = np.random.default_rng(1)
    whole = open_session(with_all_outputs(model))
    floats = [o.name for o in whole.get_outputs() if types.get(o.name) in ORDER]
    try:
        values = dict(zip(floats, whole.run(floats, dict(feeds)), strict=True)) if floats else {}
        return [_noisy_run(model, feeds, values, rng, half) for _ in range(TRIES)]
    except Exception:  # whatever onnxruntime raises: with noise an index or shape may not fit
        pass
    try:
        return [_noisy_run(model, feeds, {}, rng, half) for _ in range(TRIES)]
    except Exception:
        return []


def _noisy_run(model: Any, feeds: Mapping[str, Array], values: Mapping[str, Array], rng: Any, half: bool) -> list[Any]:
    noisy = copy_model(model)
    g = noisy.graph
    nodes = []

    def constant(name: str, a: Array, like: Array) -> str:
        g.initializer.append(nph.from_array(np.asarray(a).astype(like.dtype), name))
        return name

    for n in g.node:
        # What reads a tensor twice may read it rounded and, where it is fused, not yet rounded: x - x need not be 0.
        for i, name in enumerate(n.input):
            a = values.get(name)
            if a is not None and n.op_type in ("Add", "Sub", "Sum", "Mean"):
                kind = "float16" if half else str(a.dtype)
                scale = constant(f"{name}__{n.name}_{i}", 1 + ROUNDING[kind] * rng.standard_normal(a.shape), a)
                nodes.append(helper.make_node("Mul", [name, scale], [f"{scale}_use"]))
                n.input[i] = f"{scale}_use"
        nodes.append(n)
        for i, o in enumerate(n.output):
            if o not in values or n.op_type in ("Constant", "Identity", "ConstantOfShape"):
                continue
            a = values[o]
            n.output[i] = f"{o}__raw"
            kind = "float16" if half else str(a.dtype)
            eps, finite = ROUNDING[kind], np.abs(np.where(np.isfinite(a), a, 0))
            size = max(eps / 4 * float(finite.max(initial=0)) if n.op_type in SUMS else 0.0, LEAST[kind])
            scale = constant(f"{o}__scale", 1 + eps * rng.standard_normal(a.shape), a)
            last = f"{o}__scaled" if size else o
            nodes.append(helper.make_node("Mul", [f"{o}__raw", scale], [last]))
            if size:
                offset = constant(f"{o}__offset", size * rng.standard_normal(a.shape), a)
                nodes.append(helper.make_node("Add", [last, offset], [o]))
    del g.node[:]
    g.node.extend(nodes)
    for o in g.output:
        o.type.Clear()

    exact = {i for n in g.node if n.op_type in ("Resize", "Upsample") for i in n.input[1:]}

    def moved(name: str, a: Array) -> Array:
        if a.dtype.kind != "f" or name in exact:
            return a
        eps = ROUNDING["float16" if half else str(a.dtype)]
        with np.errstate(all="ignore"):
            return np.asarray(a * (1 + eps / 8 * rng.standard_normal(a.shape))).astype(a.dtype)

    return run_model(noisy, {n: moved(n, a) for n, a in feeds.items()})


def undefined_cast(model: Any, feeds: Mapping[str, Array]) -> str:
    """A cast of NaN, or of a number that the integer type does not hold, on the way: undefined. Else ''."""
    casts = [n for n in model.graph.node if n.op_type in ("Cast", "CastLike", "QuantizeLinear")]
    if not casts:
        return ""
    whole = open_session(with_all_outputs(model))
    inputs = {t.name: nph.to_array(t) for t in model.graph.initializer} | dict(feeds)
    fetch = [o.name for o in whole.get_outputs() if o.type in _TYPES and o.type != "tensor(bfloat16)"]
    values = dict(inputs)
    values |= dict(zip(fetch, whole.run(fetch, dict(feeds)), strict=True)) if fetch else {}
    kinds = {o.name: o.type for o in whole.get_outputs()}
    for n in casts:
        a = values.get(n.input[0])
        to = kinds.get(n.output[0], "")
        if a is None or a.dtype.kind != "f" or not a.size or "int" not in to:
            continue
        bits = np.iinfo(to[len("tensor(") : -1]) if "int4" not in to and "int2" not in to else None
        if n.op_type == "QuantizeLinear":
            if np.isnan(a).any():
                return f" [NaN into {n.op_type}]"
        elif not np.isfinite(a).all() or bits is None or a.min() <= bits.min - 1 or a.max() >= bits.max + 1:
            return f" [{n.op_type} beyond {to}]"
    return ""


def _word(tensor: Any) -> str:
    names = {onnx.TensorProto.FLOAT: "float", onnx.TensorProto.DOUBLE: "double", onnx.TensorProto.FLOAT16: "float16"}
    return names.get(tensor.data_type, "other")
