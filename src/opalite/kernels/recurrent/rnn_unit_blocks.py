"""Recurrent layers with constant weights: one product for all inputs, then a time loop over blocks of units.

A work-group with all units runs all time steps in one launch. If one core takes longer than a launch to read the
recurrent weights, SPLIT groups share the units, and every step is a launch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...cost.cost_tables import Windows
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.place import FLAT
from ...ir.shape_hints import hinted
from ...ir.tensor_type import TensorType
from ...ops.matmul import MatMul
from ...ops.operator import Cost
from ..kernel import Kernel, Params, Problem, kernels_for, register
from ..launch import Arg, Args, Launch, Local, Scratch, Weight, ceil_div
from .rnn_problem import RecurrentProblem, activation_macros, bias_blocks, input_rows, peephole_blocks, recurrent_blocks

GPU_BLOCK = 32  # units whose weights are interleaved if a work-item has one unit

# Bytes of recurrent weights per direction from which splitting them over groups pays for a launch per step, by
# device.is_cpu: a core's L2 cache, or what one compute unit reads in that time. Less if there is only one step.
SPLIT_BYTES = {True: 2 << 20, False: 1 << 17}
SPLIT_BYTES_ONE_STEP = 1 << 18
GPU_ITEMS = 512  # in a work-group that holds all units
MOST_SEQUENCES = 4  # sequences of a work-item, unless their states are rounded together


@register
class RnnUnitBlocks(Kernel):
    """NB sequences per work-group of LX x LY work-items; SPLIT groups along the units."""

    op = "Recurrent"
    rank = -1
    problem = RecurrentProblem
    space = {
        "SPLIT": (1, 2, 4, 8, 16, 32, 64),
        "NB": (1, 2, 4, 8, 16),
        "LX": (32, 1, 64, 128, 256),
        "LY": (8, 1, 2, 4, 16),
    }

    def refuse(self, p: RecurrentProblem) -> str | None:
        node = p.node
        if (refusal := p.weights_refusal()) is not None:
            return refusal
        if p.op.rounds_state and node.x.shape[1] > self.space["NB"][-1]:
            return f"the states of {node.x.shape[1]} sequences are rounded together"
        least = {"NB": _together(p), "LX": 1 if p.device.is_cpu else 32, "LY": 1}
        if _work_bytes(p, least) > p.device.local_mem:
            return f"the state does not fit the {p.device.local_mem} bytes of local memory"
        return None

    def illegal(self, p: RecurrentProblem, params: Params) -> str | None:
        items = params["LX"] * params["LY"]
        if items > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if p.device.is_cpu and items > 1:
            return "a CPU's work-item walks alone"
        if not p.device.is_cpu and items < GPU_BLOCK:
            return "neighbours should share a block"
        if _work_bytes(p, params) > p.device.local_mem:
            return f"the state does not fit the {p.device.local_mem} bytes of local memory"
        if params["NB"] < _together(p):
            return "the states of all sequences are rounded together"
        if params["NB"] > MOST_SEQUENCES and _together(p) == 1:
            return "a work-item would hold too many sums"
        if params["SPLIT"] == 1:
            return None
        if params["SPLIT"] > _blocks(p):
            return "the units are fewer"
        return p.split_refusal()

    def defaults(self, p: RecurrentProblem) -> Params:
        node = p.node
        hidden, (steps, batch, _) = p.op.hidden, node.x.shape
        sequences = max(1, batch * p.directions)
        weights = hidden * hidden * p.gates * node.x.type.storage.size
        split = 1
        enough = SPLIT_BYTES_ONE_STEP if steps == 1 else SPLIT_BYTES[p.device.is_cpu]
        if weights >= enough and not p.split_refusal():
            wanted = min(_blocks(p), p.device.compute_units // sequences)
            split = max(s for s in self.space["SPLIT"] if s <= max(1, wanted))
        if p.device.is_cpu:
            # A sequence for each core first; then several that read the weights together.
            share = min(batch, sequences * split // p.device.compute_units)
            nb = max(n for n in (1, 2, 4) if n <= max(1, share))
            return {"SPLIT": split, "NB": max(nb, _together(p)), "LX": 1, "LY": 1}
        span = ceil_div(_blocks(p), split) * GPU_BLOCK
        lx = max(x for x in (32, 64, 128, 256) if x <= max(32, min(span, p.device.max_work_group_size)))
        room = min(GPU_ITEMS, p.device.max_work_group_size) // lx
        ly = max(y for y in (1, 2, 4, 8, 16) if y <= max(1, min(room, hidden // 4)))
        return {"SPLIT": split, "NB": _together(p), "LX": lx, "LY": ly}

    def seconds(self, p: RecurrentProblem, cost: Cost) -> float:
        """The product over all steps fills the device; the time loop has one work-group per sequence."""
        node = p.node
        steps, batch, _ = node.x.shape
        split = int(self.defaults(p)["SPLIT"])
        groups = max(1, batch * p.directions * split)
        walk = 2.0 * steps * batch * p.node.input(2).type.count / p.device.peak_flops / self.share(p.device)
        if _reads_texels(p):  # the steps wait for their weights
            walk /= Windows.of(p.device).texture_gain
        idle = max(1.0, p.device.compute_units / groups)
        launches = 1 + (steps * p.passes if split > 1 else 1)
        return walk * idle + launches * p.device.launch_s + cost.bytes / p.device.bandwidth

    def launch(self, p: RecurrentProblem, params: Params) -> list[Launch]:
        node, op = p.node, p.op
        steps, batch, _ = node.x.shape
        count, hidden = p.directions, op.hidden
        block, blocks = _block(p.device), _blocks(p)
        cells = steps * batch * count * blocks * block * p.gates
        z = Scratch("gates", max(1, cells) * node.x.type.storage.size)
        lens, h0, c0 = (node.get(i) for i in (4, 5, 6))
        reads_texels = _reads_texels(p)
        prepare = (
            p.texel_weight(block) if reads_texels else p.block_weight(2, "recurrent", block, recurrent_blocks),
            p.block_weight(3, "bias", block, bias_blocks),
            p.block_weight(7, "peepholes", block, peephole_blocks),
        )
        span = ceil_div(blocks, params["SPLIT"]) * block
        groups = ceil_div(blocks * block, span)
        shared = groups > 1
        defines = p.defines | {"SHARED": shared, "PACK": block if p.device.is_cpu else 1, "BLOCK": block}
        defines |= {"ROUNDS": op.rounds_state, **{k: params[k] for k in ("NB", "LX", "LY")}}
        defines |= {"TEXELS": 1} if reads_texels else {}
        # Where an input is absent its define is 0 and z, never read through it, takes its place.
        names = ("r", "bias", "peep", "lens", "h0", "c0")
        args: Args = {"z": z, "T": steps, "B": batch, "H": hidden, "directions": count}
        args |= {k: z if v is None else v for k, v in zip(names, (*prepare, lens, h0, c0), strict=True)}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, z, z), strict=False))
        prelude = activation_macros(p, defines["PACK"])
        args |= {"span": span, "work": Local(_work_bytes(p, params))}
        args["states"] = Scratch("states", 4 * count * max(1, batch) * hidden * p.acc_bytes) if shared else z
        lx, ly = params["LX"], params["LY"]
        grid = (lx * groups, ly * ceil_div(batch, params["NB"]), count)
        turns = [(0, steps, 0)]
        if shared:
            turns = [(k, k + 1, i) for k in range(steps) for i in range(p.passes)]
        walks = (
            Launch(
                "recurrent_blocks",
                {**args, "first": first, "last": last, "pass": i},
                grid,
                (lx, ly, 1),
                defines,
                prelude,
            )
            for first, last, i in turns
        )
        return [*input_product(p, z, block), *walks]


def _together(p: RecurrentProblem) -> int:
    """The fewest sequences per group: all of them if their states share a quantisation range."""
    if not p.op.rounds_state:
        return 1
    sizes: tuple[int, ...] = RnnUnitBlocks.space["NB"]
    return next((n for n in sizes if n >= p.node.x.shape[1]), sizes[-1])


def _reads_texels(p: RecurrentProblem) -> bool:
    """Whether the recurrent weights are read through the texture cache at every step: on devices that prefer images."""
    count = p.texels(_block(p.device))
    return count > 0 and p.device.reads_texels(count)


def _block(device: DeviceInfo) -> int:
    """Units per block of the packed weights: a CPU's vector, or adjacent work-items of a GPU."""
    return device.pack if device.is_cpu else GPU_BLOCK


def _blocks(p: RecurrentProblem) -> int:
    return ceil_div(int(p.op.hidden), _block(p.device))


def _work_bytes(p: RecurrentProblem, params: Params) -> int:
    """Bytes of local memory: four states, and partial sums of work-items that share a unit."""
    units = _blocks(p) * _block(p.device)
    parts = 0 if params["LY"] == 1 else params["LX"] * params["LY"] * p.gates
    return int(params["NB"] * (4 * units + parts)) * p.acc_bytes


def _multiplies_buffers(kernel: Kernel, p: Problem) -> bool:
    """Whether the kernel multiplies matrices in buffers; its constant may be an image."""
    if kernel.refuse(p) is not None:
        return False
    return not kernel.images_only or any(b.inputs[0] == FLAT and b.outputs == (FLAT,) for b in kernel.bindings(p))


def input_product(p: RecurrentProblem, z: Scratch, block: int) -> list[Launch]:
    """z = x w' for all steps, by the matrix product kernel with the least estimate."""
    node, device = p.node, p.device
    steps, batch, inputs = node.x.shape
    columns = p.directions * ceil_div(p.op.hidden, block) * block * p.gates
    place = node.x.type.place
    x = Value("x", TensorType(node.x.dtype, (steps * batch, inputs), place))
    # Matmul kernels only ask whether the weights are constant; the packed Weight replaces their contents.
    w = Value("w", TensorType(node.x.dtype, (columns, inputs), place), np.zeros(()))
    y = Value("y", TensorType(node.x.dtype, (steps * batch, columns), place))
    product = Node(MatMul(trans_a=False, trans_b=True), [x, w], [y], name=node.name, origin=node.origin)
    near = hinted(product)  # the kernel is chosen for this size, with a guard
    cost = near.cost()
    kernels = [k for k in kernels_for("MatMul") if _multiplies_buffers(k, k.problem(near, device))]
    kernels.sort(key=lambda k: k.seconds(k.problem(near, device), cost))
    kernel = next(k for k in kernels if k.refuse(k.problem(product, device)) is None)
    problem, params = kernel.problem(product, device), kernel.defaults(kernel.problem(near, device))
    if kernel.illegal(problem, params) is not None:
        params = next(kernel.points(problem))
    rows = p.block_weight(1, "rows", block, input_rows)
    assert rows is not None

    def prepared(inner: Weight) -> Weight:
        return Weight(rows.value, f"{rows.form}:{inner.form}", lambda data: inner.fn(rows.fn(data)), image=inner.image)

    def given(arg: Arg) -> Arg:
        if isinstance(arg, Weight):
            return prepared(arg)
        if arg is x:
            return node.x
        return rows if arg is w else z if arg is y else arg

    launches = kernel.launch(problem, params)
    return [replace(one.replace_arguments(given), source=one.source or kernel.source) for one in launches]
