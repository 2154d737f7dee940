"""Runs of onnxruntime with every value off by a rounding error or two: as far as they spread, nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .known import inner_nodes
from .protos import scales_of
from .steps import Steps, Values

Array = np.ndarray[Any, Any]

ROUNDING = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3}
"""Relative noise put on every intermediate value when results differ: a few units in the last place."""

LEAST = {"float64": 0.0, "float32": 0.0, "float16": 6e-8}
"""Noise that is there anyway: the step of the least numbers of 16 bits, which graphs do come down to."""

TRIES = 10

NORMS = frozenset(
    (
        "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization",
        "RMSNormalization", "MeanVarianceNormalization", "LpNormalization", "LRN", "SkipLayerNormalization",
        "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization",
    )
)  # fmt: skip

ADDS = frozenset(("Add", "Sub", "Sum", "Mean"))

SUMS = NORMS | ADDS | frozenset(
    (
        "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "CumSum", "AveragePool",
        "GlobalAveragePool", "LpPool", "GlobalLpPool", "Resize", "Upsample", "GridSample", "RoiAlign",
        "Softmax", "LogSoftmax",
        "LSTM", "GRU", "RNN", "Attention", "Det", "Mod", "RotaryEmbedding", "ReduceSum", "ReduceMean", "ReduceL1",
        "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "QLinearConv", "DequantizeLinear",
        "ScatterElements", "ScatterND", "Loop", "Scan", "If", "FusedMatMul", "FusedConv", "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul", "SVMClassifier", "SVMRegressor", "LinearClassifier", "LinearRegressor",
        "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    )
)  # fmt: skip
"""Operators that sum, so that a result near zero has the error of its terms."""

APPROXIMATED = frozenset(
    (
        "Tanh", "Sigmoid", "Erf", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "Mish", "Softplus", "Swish", "Elu",
        "Selu", "Celu", "RNN", "GRU", "LSTM",
    )
)  # fmt: skip
"""Operators that onnxruntime computes by formulas that are right to a part of one, not of the result: its sigmoid ends
at 1.5e-8, and its tanh of 3.3e-5 is off by 1.5e-7 of that."""

APPROXIMATION = {"float64": 1e-7, "float32": 1e-7, "float16": 1e-4}

EXACT = ("Constant", "Identity", "ConstantOfShape")


def noisy_runs(steps: Steps, feeds: Mapping[str, Array], half: bool, scales: bool = False) -> list[list[Any]]:
    """Outputs of up to TRIES runs with noise; [] where noise makes the model invalid. half: values lie in halves.
    scales: with noise on the scales, too, by which operators compute between integers."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(TRIES):
        try:
            found.append(steps.outputs(noisy_run(steps, feeds, rng, half, number % 2 == 1, scales)))
        except Exception:  # whatever onnxruntime raises: with noise an index or shape may not fit
            continue
    return found


def noisy_run(
    steps: Steps, feeds: Mapping[str, Array], rng: Any, half: bool, other: bool, scales: bool = False
) -> Values:
    """One run. other: halves of the model are kept in float32; or if `half`, what is float32 is rounded to halves.
    scales: as noisy_runs has it."""
    exact = {i for step in steps.steps for n in step.nodes if n.op_type in ("Resize", "Upsample") for i in n.input[1:]}

    def kind(name: str, a: Array) -> str:
        own = steps.dtype(name) or str(a.dtype)
        return "float16" if half and own == "float32" else own

    def scaled(a: Array, eps: float) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(a * (1 + eps * rng.standard_normal(a.shape))).astype(a.dtype)

    def before(node: Any, name: str, a: Array) -> Array:
        # Between integers an operator rounds in float32, too: beside a half, the last bits decide on the result.
        if scales and name in scales_of(node) and a.dtype.kind == "f":
            return scaled(a, ROUNDING["float32"])
        # What reads a tensor twice may read it rounded and, where it is fused, not yet rounded: x - x need not be 0.
        if a.dtype.kind != "f" or name in exact or node.op_type not in ADDS | NORMS:
            return a
        return scaled(a, ROUNDING[kind(name, a)])

    def after(node: Any, name: str, a: Array) -> Array:
        if a.dtype.kind != "f" or node.op_type in EXACT or name in exact:
            return a
        own, ops = kind(name, a), {n.op_type for n in inner_nodes([node])}
        eps = ROUNDING[own]
        size = LEAST[own]
        if ops & SUMS:
            size = max(size, eps / 4 * float(np.abs(np.where(np.isfinite(a), a, 0)).max(initial=0)))
        if ops & APPROXIMATED:
            size = max(size, APPROXIMATION[own])
        found = scaled(a, eps)
        with np.errstate(all="ignore"):
            if size:
                found = np.asarray(found + size * rng.standard_normal(a.shape)).astype(a.dtype)
            if half and other and a.dtype == np.float32:
                found = found.astype(np.float16).astype(np.float32)
        return found

    def fed(name: str, a: Array) -> Array:
        if a.dtype.kind != "f" or name in exact:
            return a
        if half and other and a.dtype == np.float32:  # as they are stored: what halves make equal is equal
            with np.errstate(all="ignore"):
                return a.astype(np.float16).astype(np.float32)
        return scaled(a, ROUNDING[kind(name, a)] / 8)

    given = {n: fed(n, a) for n, a in feeds.items()}
    return steps.run(given, before, after, wide=other)
