"""Whether two results may be called equal, and where they may not, whose fault it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from opalite.ir import DType
from opalite.ir.tolerances import tolerance

from .noise import noisy_runs
from .oracle import open_session, run_model
from .protos import reads, scales_of
from .steps import Steps

Array = np.ndarray[Any, Any]

ORDER = ("float64", "float32", "float16")  # from the finest on; bfloat16 counts as float16
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


def coarsest(model: Any, dtype: Callable[[str], str | None]) -> dict[str, str]:
    """The coarsest float type among all that each tensor is computed from."""
    found: dict[str, str] = {}

    def own(name: str) -> str:
        kind = dtype(name)
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


Wrong = tuple[str, Array, Array, Difference]
"""An output by name, what is right, what came, and how they differ."""


class Oracle:
    """onnxruntime's results for one model, and the judgement of others."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.session = open_session(model)
        self.names = [o.name for o in model.graph.output]

    def run(self, feeds: Mapping[str, Array]) -> list[Any]:
        """Outputs; whatever onnxruntime raises where it does not take the feeds."""
        return list(self.session.run(None, dict(feeds)))

    @cached_property
    def steps(self) -> Steps:
        return Steps(self.model)

    @cached_property
    def _coarse(self) -> dict[str, str]:
        return coarsest(self.model, self.steps.dtype)

    def coarse(self, name: str) -> str:
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
        wrong = self._by_steps(feeds, wrong, half)
        if any(x[3].kind == "shape" for x in wrong) and self.shapes_move(feeds, half):
            wrong = [x for x in wrong if x[3].kind != "shape"]
        if wrong and all(x[3].kind in ("value", "nan", "inf") for x in wrong):
            wrong = self._stable(feeds, wrong, half)
            wrong = self._rounded_once(feeds, wrong, half) if wrong and self._has_scales else wrong
        if not wrong:
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

    def _by_steps(self, feeds: Mapping[str, Array], wrong: Sequence[Wrong], half: bool) -> list[Wrong]:
        """Those of `wrong` that stay so beside what onnxruntime computes node by node, rounding each value, and with
        its known quirks mended; less what nothing is said of."""
        try:
            values = self.steps.run(feeds)
        except Exception:  # whatever onnxruntime raises
            return list(wrong)
        outputs = dict(zip(self.names, self.steps.outputs(values), strict=True))
        found = []
        for name, w, g, _ in wrong:
            want = w if outputs[name] is None else outputs[name]
            d = compare(want, g, "float16" if half else self.coarse(name))
            if name not in values.tainted and d is not None:
                found.append((name, want, g, d))
        return found

    def shapes_move(self, feeds: Mapping[str, Array], half: bool = False) -> bool:
        """Whether rounding decides on the shapes of outputs, or on whether the model runs at all."""
        runs = noisy_runs(self.steps, feeds, half)
        return not runs or any(np.shape(a) != np.shape(b) for r in runs for a, b in zip(r, runs[0], strict=True))

    def _stable(self, feeds: Mapping[str, Array], wrong: Sequence[Wrong], half: bool) -> list[Wrong]:
        """Those of `wrong` that noise does not explain."""
        runs = noisy_runs(self.steps, feeds, half)
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

    @cached_property
    def _has_scales(self) -> bool:
        return any(scales_of(n) for step in self.steps.steps for n in step.nodes)

    def _rounded_once(self, feeds: Mapping[str, Array], wrong: Sequence[Wrong], half: bool) -> list[Wrong]:
        """Those of `wrong` that do not lie, in each element, between what comes of errors in the last bits of scales.

        An operator between integers computes in float32 and rounds the result to an integer: beside a half either of
        two integers is right, the one below and the one above.
        """
        runs = noisy_runs(self.steps, feeds, half, scales=True)
        found = []
        for name, w, g, d in wrong:
            i = self.names.index(name)
            right = [w, *(run[i] for run in runs)]
            allowed = allowance(w, "float16" if half else self.coarse(name)) if w.dtype.kind == "f" else 0
            if any(r.shape != w.shape for r in right):
                found.append((name, w, g, d))
                continue
            low, high = np.min(right, axis=0), np.max(right, axis=0)
            if not np.all((g >= low - allowed) & (g <= high + allowed)):
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


def _one_of(got: Array, runs: Sequence[Array], allowed: Array, coarse: str) -> Array:
    """Of elements that are finite in some runs only: whether they are as in those, or not finite."""
    finite = np.isfinite(runs)
    with np.errstate(all="ignore"):
        low = np.min(np.where(finite, runs, np.inf), axis=0)
        high = np.max(np.where(finite, runs, -np.inf), axis=0)
        room = ROOM * (high - low) + tolerance("model", DType[coarse.upper()]) * np.maximum(np.abs(low), np.abs(high))
        within = (got >= low - room - allowed) & (got <= high + room + allowed)
    return np.asarray(~np.isfinite(got) | within)


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
            spread = np.max([np.nan_to_num(np.abs(o - w), nan=0.0, posinf=0.0) for o in runs], axis=0)
            same = (w == g) | (np.isnan(w) & np.isnan(g))
            near = np.abs(w - g) <= allowed + ROOM * spread
        moved = (spread > allowed) | special
        left = ~(same | near | (special & _one_of(g, [w, *runs], allowed, coarse)))
    return 2 * int(left.sum()) <= int(moved.sum())
