"""Generic LSTM, GRU and RNN by one program: directions, optional inputs and activations are arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...expr.trace_function import trace
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.precision import Precision
from ...ir.symbols import symbolic_max
from ...ops.recurrent import FUNCTIONS, GATES, Recurrent, directions
from ..codegen.expression_code import generate
from ..kernel import Params, Problem, register
from ..launch import Arg, Args, Launch, Scratch, ceil_div
from ..recurrent.rnn_problem import EXPRESSIONS, KINDS
from .generic_kernel import Build, GenericKernel, storage_of, vector_defines

_NUMBERS = {name: k for k, name in enumerate(EXPRESSIONS)}
_LENGTHS = 4  # the only integer input
GROUP = 64  # work-items that share the units of a sequence on a GPU
LINES = 32  # of inputs that a CPU's work-item multiplies by some rows of the weights, which stay in its cache


@register
class RnnGeneric(GenericKernel):
    """One launch for the inputs of all steps, then a time loop for each direction of each sequence."""

    op = "Recurrent"

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if node.as_(Recurrent).rounds_state:
            return "the general kernel does not round the state"
        for i, v in enumerate((*node.inputs, *node.outputs)):
            if v is not None and i != _LENGTHS and storage_of(node, v) is not DType.FLOAT32:
                return f"{v!r} is {storage_of(node, v)}; the general kernel computes float32"
        if node.precision not in (Precision.FP32, Precision.WIDE):
            return f"the general kernel stores float32, not {node.precision.value}"
        return None

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        pack = vector_defines(device)["PACK"]
        units, lines = (pack, LINES) if device.is_cpu else (1, 1)
        return [Build(self.source, {"PACK": pack, "UNITS": units, "LINES": lines}, _prelude(device, units))]

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(Recurrent)
        steps, batch, inputs = node.x.shape
        hidden, count, kind = op.hidden, directions(op), op.kind
        rows = GATES[kind] * hidden
        (build,) = self.builds(p.device)
        z = Scratch("gates", 4 * symbolic_max((steps * batch * count * rows, 1)))
        state, cell, reset = (
            Scratch(name, 4 * symbolic_max((n * count * batch * hidden, 1)))
            for name, n in (("h", 2), ("c", 1), ("reset", 1))
        )

        def given(v: Value | None) -> Arg:
            return z if v is None else v  # never read

        b, lens, h0, c0, peep = (node.get(i) for i in range(3, 8))
        common: Args = {"b": given(b), "z": z, "hidden": hidden, "rows": rows, "directions": count}
        common |= {"has_bias": int(b is not None), "reset_late": int(kind == "gru" and op.linear_before_reset)}
        first = {**common, "x": node.x, "w": node.input(1), "lines": steps * batch, "inputs": inputs}
        units, lines = build.defines["UNITS"], build.defines["LINES"]
        grid = (ceil_div(count * rows, units), ceil_div(steps * batch, lines))
        product = Launch("recurrent_general_inputs", first, grid, None, build.defines, build.prelude)
        args: Args = {**common, "r": node.input(2), "state": state, "cell": cell, "reset": reset}
        args |= {"lens": given(lens), "h0": given(h0), "c0": given(c0), "peep": given(peep)}
        args |= {"has_lens": int(lens is not None), "has_h0": int(h0 is not None)}
        args |= {"has_c0": int(c0 is not None), "has_peep": int(peep is not None)}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, state, state), strict=False))
        args |= {"steps": steps, "batch": batch, "kind": KINDS[kind], "each": FUNCTIONS[kind]}
        args |= {"reverse": int(op.direction == "reverse"), "coupled": int(op.input_forget), "clip": float(op.clip)}
        functions = zip(op.activations, op.alphas, op.betas, strict=True)
        args["functions"] = np.array([(_NUMBERS[name], a or 0.0, b or 0.0) for name, a, b in functions], np.float32)
        items = _items(p.device)
        walk = Launch("recurrent_general", args, (items, batch, count), (items, 1, 1), build.defines, build.prelude)
        return [product, walk] if steps else [walk]


def _items(device: DeviceInfo) -> int:
    """Work-items that share the units of a sequence."""
    return 1 if device.is_cpu else min(GROUP, device.max_work_group_size)


def _prelude(device: DeviceInfo, units: int) -> str:
    """The prelude of generic_recurrent.cl; without barriers PoCL compiles it once (pocl/prune_header.py).

    units: in the vectors of which activations are computed.
    """
    items = _items(device)
    helpers: dict[str, str] = {}
    cases = []
    for name, expression in EXPRESSIONS.items():
        made = generate(trace(expression, *(DType.FLOAT32,) * 3), units, ["x", "alpha", "beta"], device=device)
        helpers |= made.helpers
        cases.append(f"case {_NUMBERS[name]}: {{ {' '.join(made.statements)} return {made.result}; }}")
    meet = "" if items == 1 else "barrier(CLK_GLOBAL_MEM_FENCE);"
    activations = "#define ACTIVATIONS \\\n    " + " \\\n    ".join(cases)
    return "\n".join((*helpers.values(), activations, f"#define MEET {meet}", f"#define ITEMS {items}", ""))
