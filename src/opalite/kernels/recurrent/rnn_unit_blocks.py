"""Recurrent layers with constant weights: one product for all inputs, then a time loop over blocks of units.

A work-group with all units runs all time steps in one launch. If one core takes longer than a launch to read the
recurrent weights, SPLIT groups share the units, and every step is a launch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.shape_hints import hinted
from ...ir.tensor_type import TensorType
from ...ops.matmul import MatMul
from ...ops.operator import Cost
from ...ops.recurrent import GATES, Recurrent, directions
from ..kernel import Kernel, Params, Problem, kernels_for, register
from ..launch import STORAGE, Arg, Args, Launch, Local, Scratch, Weight, ceil_div
from .pack_rnn_weights import bias_blocks, block_weight, input_rows, peephole_blocks, recurrent_blocks
from .rnn_activations import activation_macros

KINDS = {"lstm": 0, "gru": 1, "rnn": 2}
GPU_BLOCK = 32  # units whose weights are interleaved if a work-item has one unit

# Bytes of recurrent weights per direction from which splitting them over groups pays for a launch per step, by
# device.is_cpu: a core's L2 cache, or what one compute unit reads in that time. Less if there is only one step.
SPLIT_BYTES = {True: 2 << 20, False: 1 << 17}
SPLIT_BYTES_ONE_STEP = 1 << 18
MOST_LAUNCHES = 512
GPU_ITEMS = 512  # in a work-group that holds all units
MOST_SEQUENCES = 4  # sequences of a work-item, unless their states are rounded together


@register
class RnnUnitBlocks(Kernel):
    """NB sequences per work-group of LX x LY work-items; SPLIT groups along the units."""

    op = "Recurrent"
    space = {
        "SPLIT": (1, 2, 4, 8, 16, 32, 64),
        "NB": (1, 2, 4, 8, 16),
        "LX": (32, 1, 64, 128, 256),
        "LY": (8, 1, 2, 4, 16),
    }

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if (refusal := weights_refusal(node)) is not None:
            return refusal
        if node.as_(Recurrent).rounds_state and node.x.shape[1] > self.space["NB"][-1]:
            return f"the states of {node.x.shape[1]} sequences are rounded together"
        least = {"NB": _together(node), "LX": 1 if p.device.is_cpu else 32, "LY": 1}
        if _work_bytes(node, least, p.device) > p.device.local_mem:
            return f"the state does not fit the {p.device.local_mem} bytes of local memory"
        return None

    def illegal(self, p: Problem, params: Params) -> str | None:
        items = params["LX"] * params["LY"]
        if items > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if p.device.is_cpu and items > 1:
            return "a CPU's work-item walks alone"
        if not p.device.is_cpu and items < GPU_BLOCK:
            return "neighbours should share a block"
        if _work_bytes(p.node, params, p.device) > p.device.local_mem:
            return f"the state does not fit the {p.device.local_mem} bytes of local memory"
        if params["NB"] < _together(p.node):
            return "the states of all sequences are rounded together"
        if params["NB"] > MOST_SEQUENCES and _together(p.node) == 1:
            return "a work-item would hold too many sums"
        if params["SPLIT"] == 1:
            return None
        if params["SPLIT"] > _blocks(p.node, p.device):
            return "the units are fewer"
        return split_refusal(p.node)

    def defaults(self, p: Problem) -> Params:
        node = p.node
        hidden, (steps, batch, _) = node.as_(Recurrent).hidden, node.x.shape
        sequences = max(1, batch * directions(node.as_(Recurrent)))
        weights = hidden * hidden * GATES[node.as_(Recurrent).kind] * node.x.type.storage.size
        split = 1
        if weights >= (SPLIT_BYTES_ONE_STEP if steps == 1 else SPLIT_BYTES[p.device.is_cpu]) and not split_refusal(
            node
        ):
            wanted = min(_blocks(node, p.device), p.device.compute_units // sequences)
            split = max(s for s in self.space["SPLIT"] if s <= max(1, wanted))
        if p.device.is_cpu:
            # A sequence for each core first; then several that read the weights together.
            share = min(batch, sequences * split // p.device.compute_units)
            nb = max(n for n in (1, 2, 4) if n <= max(1, share))
            return {"SPLIT": split, "NB": max(nb, _together(node)), "LX": 1, "LY": 1}
        span = ceil_div(_blocks(node, p.device), split) * GPU_BLOCK
        lx = max(x for x in (32, 64, 128, 256) if x <= max(32, min(span, p.device.max_work_group_size)))
        room = min(GPU_ITEMS, p.device.max_work_group_size) // lx
        ly = max(y for y in (1, 2, 4, 8, 16) if y <= max(1, min(room, hidden // 4)))
        return {"SPLIT": split, "NB": _together(node), "LX": lx, "LY": ly}

    def seconds(self, p: Problem, cost: Cost) -> float:
        """The product over all steps fills the device; the time loop has one work-group per sequence."""
        node = p.node
        steps, batch, _ = node.x.shape
        split = int(self.defaults(p)["SPLIT"])
        groups = max(1, batch * directions(node.as_(Recurrent)) * split)
        walk = 2.0 * steps * batch * p.node.input(2).type.count / p.device.peak_flops / self.share(p.device)
        idle = max(1.0, p.device.compute_units / groups)
        launches = 1 + (steps * pass_count(node.as_(Recurrent)) if split > 1 else 1)
        return walk * idle + launches * p.device.launch_s + cost.bytes / p.device.bandwidth

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(Recurrent)
        steps, batch, _ = node.x.shape
        count, hidden = directions(op), op.hidden
        block, blocks = _block(p.device), _blocks(node, p.device)
        cells = steps * batch * count * blocks * block * GATES[op.kind]
        z = Scratch("gates", max(1, cells) * node.x.type.storage.size)
        lens, h0, c0 = (node.get(i) for i in (4, 5, 6))
        prepare = [
            None if v is None else block_weight(node, v, name, block, fn)
            for v, name, fn in (
                (node.get(2), "recurrent", recurrent_blocks),
                (node.get(3), "bias", bias_blocks),
                (node.get(7), "peepholes", peephole_blocks),
            )
        ]
        span = ceil_div(blocks, params["SPLIT"]) * block
        groups = ceil_div(blocks * block, span)
        shared = groups > 1
        defines = {
            "STORAGE": STORAGE[node.x.type.storage],
            "SHARED": shared,
            "PACK": block if p.device.is_cpu else 1,
            "BLOCK": block,
            "KIND": KINDS[op.kind],
            "RESET_LATE": op.kind == "gru" and op.linear_before_reset,
            "COUPLED": op.input_forget,
            "BACKWARD": op.direction == "reverse",
            "HAS_BIAS": node.get(3) is not None,
            "HAS_LENS": lens is not None,
            "HAS_H0": h0 is not None,
            "HAS_C0": c0 is not None,
            "HAS_PEEP": node.get(7) is not None,
            "ROUNDS": op.rounds_state,
            **{k: params[k] for k in ("NB", "LX", "LY")},
        }
        # Where an input is absent its define is 0 and z, never read through it, takes its place.
        names = ("r", "bias", "peep", "lens", "h0", "c0")
        args: Args = {"z": z, "T": steps, "B": batch, "H": hidden, "directions": count}
        args |= {k: z if v is None else v for k, v in zip(names, (*prepare, lens, h0, c0), strict=True)}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, z, z), strict=False))
        prelude = activation_macros(node, defines["PACK"], p.device)
        args |= {"span": span, "work": Local(_work_bytes(node, params, p.device))}
        args["states"] = Scratch("states", 4 * count * max(1, batch) * hidden * acc_bytes(node)) if shared else z
        lx, ly = params["LX"], params["LY"]
        grid = (lx * groups, ly * ceil_div(batch, params["NB"]), count)
        turns = [(0, steps, 0)]
        if shared:
            turns = [(k, k + 1, i) for k in range(steps) for i in range(pass_count(op))]
        return input_product(node, z, block, p.device) + [
            Launch(
                "recurrent_blocks",
                {**args, "first": first, "last": last, "pass": i},
                grid,
                (lx, ly, 1),
                defines,
                prelude,
            )
            for first, last, i in turns
        ]


def weights_refusal(node: Node) -> str | None:
    """The reason why the weights cannot be packed ahead of time, or None."""
    if not node.x.dtype.is_float:
        return f"{node.x.dtype} has no activations"
    for i, what in ((1, "input weights"), (2, "recurrent weights"), (3, "bias"), (7, "peepholes")):
        v = node.get(i)
        if v is not None and not v.is_const:
            return f"the {what} are not constant"
    return None


def split_refusal(node: Node) -> str | None:
    """The reason why the units cannot be split over groups with a launch per step, or None."""
    steps = node.x.shape[0]
    if steps == 0 or steps * pass_count(node.as_(Recurrent)) > MOST_LAUNCHES:
        return f"{steps} steps would take too many launches"
    return None


def pass_count(op: Recurrent) -> int:
    """Passes over the state per step: a GRU whose reset gate acts on the state needs two."""
    return 2 if op.kind == "gru" and not op.linear_before_reset else 1


def _together(node: Node) -> int:
    """The fewest sequences per group: all of them if their states share a quantisation range."""
    if not node.as_(Recurrent).rounds_state:
        return 1
    sizes: tuple[int, ...] = RnnUnitBlocks.space["NB"]
    return next((n for n in sizes if n >= node.x.shape[1]), sizes[-1])


def _block(device: DeviceInfo) -> int:
    """Units per block of the packed weights: a CPU's vector, or adjacent work-items of a GPU."""
    return device.pack if device.is_cpu else GPU_BLOCK


def _blocks(node: Node, device: DeviceInfo) -> int:
    return ceil_div(int(node.as_(Recurrent).hidden), _block(device))


def _work_bytes(node: Node, params: Params, device: DeviceInfo) -> int:
    """Bytes of local memory: four states, and partial sums of work-items that share a unit."""
    units = _blocks(node, device) * _block(device)
    parts = 0 if params["LY"] == 1 else params["LX"] * params["LY"] * GATES[node.as_(Recurrent).kind]
    return int(params["NB"] * (4 * units + parts)) * acc_bytes(node)


def acc_bytes(node: Node) -> int:
    """Bytes of an accumulator; states are not rounded to halves at each step."""
    return 8 if node.x.type.storage is DType.FLOAT64 else 4


def input_product(node: Node, z: Scratch, block: int, device: DeviceInfo) -> list[Launch]:
    """z = x w' for all steps, by the matrix product kernel with the least estimate."""
    steps, batch, inputs = node.x.shape
    gates = GATES[node.as_(Recurrent).kind]
    columns = directions(node.as_(Recurrent)) * ceil_div(node.as_(Recurrent).hidden, block) * block * gates
    place = node.x.type.place
    x = Value("x", TensorType(node.x.dtype, (steps * batch, inputs), place))
    # Matmul kernels only ask whether the weights are constant; the packed Weight replaces their contents.
    w = Value("w", TensorType(node.x.dtype, (columns, inputs), place), np.zeros(()))
    y = Value("y", TensorType(node.x.dtype, (steps * batch, columns), place))
    product = Node(MatMul(trans_a=False, trans_b=True), [x, w], [y], name=node.name, origin=node.origin)
    near = hinted(product)  # the kernel is chosen for this size, with a guard
    cost = near.cost()
    kernels = [k for k in kernels_for("MatMul") if not k.images_only and k.refuse(k.problem(near, device)) is None]
    kernels.sort(key=lambda k: k.seconds(k.problem(near, device), cost))
    kernel = next(k for k in kernels if k.refuse(k.problem(product, device)) is None)
    problem, params = kernel.problem(product, device), kernel.defaults(kernel.problem(near, device))
    if kernel.illegal(problem, params) is not None:
        params = next(kernel.points(problem))
    rows = block_weight(node, node.input(1), "rows", block, input_rows)

    def prepared(inner: Weight) -> Weight:
        return Weight(rows.value, f"{rows.form}:{inner.form}", lambda data: inner.fn(rows.fn(data)))

    def given(arg: Arg) -> Arg:
        if isinstance(arg, Weight):
            return prepared(arg)
        if arg is x:
            return node.x
        return rows if arg is w else z if arg is y else arg

    launches = kernel.launch(problem, params)
    return [replace(one.replace_arguments(given), source=one.source or kernel.source) for one in launches]
