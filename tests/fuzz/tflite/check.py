"""A case beside LiteRT's reference kernels, in null mode or on a device. What is wrong is raised as a Fault.

Integers agree bit for bit, but for operators whose reference computes in floats (`STEPS`): these may be one step off.
Where a graph differs, each operator is tried alone on what LiteRT gives it: only what one of them does is a fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import opalite
from opalite.ir.precision import Precision

from ...helpers.tflite_writer import write_model
from ..check import guarded
from ..judge import Fault
from ..null import NullSession, described_devices
from .graph import Case
from .oracle import Lite, Refused, alone

STEPS = frozenset(
    ("QUANTIZE", "EXP", "ELU", "GELU", "LOG", "LOGISTIC", "TANH", "SQRT", "CONCATENATION", "FULLY_CONNECTED", "SUM")
)
TOLERANCE = 1e-4  # of the largest value
BYTES_TOLERANCE = 5e-3  # where floats are rounded to bytes first: LiteRT has their scale in double


def session_of(model: bytes, mode: str, seed: int) -> Any:
    """What runs a file: a session, or a plan for a device that is not here."""
    if mode == "device":
        return opalite.InferenceSession(model, precision="fp32")
    devices = sorted(described_devices().items())
    return NullSession(model, devices[seed % len(devices)][1], Precision.FP32)


def answers(model: bytes, feeds: dict[str, Any], mode: str, seed: int, where: str) -> list[Any]:
    """The outputs of a file, and those of its variables; a Fault if it is refused."""
    session = guarded(f"{where}: opening", lambda: session_of(model, mode, seed))
    run = session.run if mode == "null" else lambda f: session.run(None, f)
    return [np.asarray(a) for a in guarded(where, lambda: run(feeds))]


def difference(got: Any, want: Any, steps: int, tolerance: float = TOLERANCE) -> str:
    """How a result is wrong, or ''. steps: by which integers may differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} where {want.dtype}{list(want.shape)} is expected"
    if not want.size:
        return ""
    if want.dtype.kind == "f":
        finite = np.isfinite(want)
        scale = float(np.abs(want[finite]).max(initial=1e-3))
        wrong = ~np.isclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        wrong &= ~(np.isnan(want) & np.isinf(got))  # LiteRT also multiplies infinities by weights of 0
    else:
        wrong = np.abs(got.astype(np.int64) - want.astype(np.int64)) > steps
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {want.size} elements differ, [{', '.join(map(str, at))}] is {got[at]} for {want[at]}"


def check(case: Case, mode: str, seed: int = 0) -> str:
    """'ok', or 'steps' where only operators in floats, or what follows from them, differ. Raises Fault."""
    got = answers(case.model, case.feeds, mode, seed, "the graph")
    if not any(difference(a, b, 0) for a, b in zip(got, case.want, strict=False)):
        return "ok"
    check_alone(case, mode, seed)
    return "steps"


def check_alone(case: Case, mode: str, seed: int) -> None:
    """Each operator on what LiteRT gives it."""
    graph, arrays = case.graph, {}
    for i in graph.inputs:
        arrays[i] = case.feeds[graph.tensors[i].name]
    every = [i for o in graph.operators for i in o.outputs]
    held, graph.outputs = graph.outputs, every
    try:
        made = dict(zip(every, Lite(graph).run(list(case.feeds.values())), strict=True))
    finally:
        graph.outputs = held
    arrays |= made
    for number, o in enumerate(graph.operators):
        only = alone(graph, o, arrays)
        given = {graph.tensors[i].name: arrays[i] for i in dict.fromkeys(o.inputs) if i in arrays}
        try:
            want = Lite(only).run(list(given.values()))
        except Refused:
            continue
        where = f"operator {number}, {o.name}"
        in_floats = o.name == "RESIZE_BILINEAR" and graph.tensors[o.inputs[0]].dtype == "uint8"
        steps = int(o.name in STEPS or in_floats)
        held = [graph.tensors[i] for i in (*o.inputs, *o.outputs) if i >= 0]
        rounds = held[-1].dtype == "float32" and any(t.quant is not None and t.dtype == "int8" for t in held[1:-1])
        tolerance = BYTES_TOLERANCE if rounds else TOLERANCE
        got = answers(write_model(only), given, mode, seed, where)
        for k, (a, b) in enumerate(zip(got, want, strict=False)):
            if text := difference(a, b, steps, tolerance):
                kinds = " ".join(describe(graph.tensors[i]) for i in (*o.inputs, *o.outputs) if i >= 0)
                raise Fault("wrong", f"{where} ({kinds}; {o.fields}), output {k}: {text}")


def describe(t: Any) -> str:
    """Type, shape and first scale of a tensor."""
    quant = "" if t.quant is None else f"*{t.quant.scales[0]:.4g}{t.quant.zeros[0]:+d}"
    quant += "" if t.quant is None or len(t.quant.scales) == 1 else ".."
    return f"{t.dtype}{list(t.shape)}{quant}".replace(" ", "")
