"""Persistent recurrent layers: weights stay in the registers of work-groups that run until the last step.

Each step needs the previous step's results of all work-groups. One launch per step costs 4 to 10 us. A grid barrier
through a counter in memory takes 1.3 us (on an H200), and weights stay in registers across it, as in Diamos et al. 2016
("Persistent RNNs"). A grid barrier needs all work-groups resident, so there is at most one per compute unit. A
work-group that waits too long exits, and a last launch then recomputes the layer without grid barriers. The result is
therefore correct however the device is shared.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...cost.cost_tables import SequentialSteps
from ...ir.device.device_family import PTX_MMA
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ops.operator import Cost
from ...ops.recurrent import GATES, Recurrent, directions
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Array, Launch, Local, Scratch, ceil_div
from .pack_rnn_weights import bias_blocks, block_weight, in_blocks, peephole_blocks
from .rnn_activations import activation_macros
from .rnn_unit_blocks import KINDS, acc_bytes, input_product, pass_count, split_refusal, weights_refusal

HELD_WORDS = 128  # most registers of a work-item for weights
REGISTERS = 60000  # share of a compute unit's local memory for a group
OTHER_WORDS = 44  # registers of a work-item besides weights
ITEMS = 256  # work-items of a group, unless the weights need more


@register
class RnnPersistent(Kernel):
    """At most GROUPS work-groups for NB sequences of a direction; WAYS work-items per gate of BLOCK units.

    WALK: "meet", a grid barrier after each step; "launches", one launch per step; "alone", a single work-group.
    """

    op = "Recurrent"
    space = {
        "WALK": ("meet", "launches", "alone"),
        "BLOCK": (4, 8, 2, 16, 1, 32),
        "WAYS": (8, 16, 32, 4, 2, 1),
        "NB": (1, 2, 4, 8),
        "HELD": (True, False),
    }

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(Recurrent).rounds_state:
            return "a group does not know the range of the state"
        return weights_refusal(p.node)

    def illegal(self, p: Problem, params: Params) -> str | None:
        node, device = p.node, p.device
        op = node.as_(Recurrent)
        items = GATES[op.kind] * params["BLOCK"] * params["WAYS"]
        if items > device.max_work_group_size:
            return f"the device runs at most {device.max_work_group_size} work-items in a group"
        if params["NB"] > params["WAYS"]:
            return "a work-item would have several rows to add up"
        if _work_bytes(node, params) > device.local_mem:
            return f"the state does not fit the {device.local_mem} bytes of local memory"
        if params["WALK"] == "meet":
            if not has_grid_barrier(device):
                return "groups of this device are not known to run at once"
            if max_resident_groups(p, params["NB"]) < 1:
                return "there are more sequences than compute units"
        elif params["WALK"] == "launches" and (refusal := split_refusal(node)) is not None:
            return refusal
        if params["HELD"] and (params["WALK"] != "meet" or _group_count(p, params) < _shares(node, params)):
            return "a group has several shares"
        if params["HELD"] and not _holds(node, params):
            return "the weights do not fit the registers"
        return None

    def defaults(self, p: Problem) -> Params:
        node, device = p.node, p.device
        op = node.as_(Recurrent)
        gates, batch = GATES[op.kind], node.x.shape[1]
        walk = "meet" if has_grid_barrier(device) else "launches" if split_refusal(node) is None else "alone"
        # Sequences share weight loads, unless weights stay in registers.
        for nb in (1, 2, 4, 8):
            if batch <= nb:
                break
        room = max_resident_groups(p, nb) if walk == "meet" else device.compute_units
        sizes = sorted(self.space["BLOCK"])
        block = next((b for b in sizes if ceil_div(op.hidden, b) <= room), sizes[-1])
        most = min(ITEMS, device.max_work_group_size)
        params = {"WALK": walk, "BLOCK": block, "NB": nb, "HELD": walk == "meet"}
        wanted = [n for n in sorted(self.space["WAYS"]) if n >= nb]
        fitting = [n for n in wanted if gates * block * n <= most and 2 * n <= max(8, op.hidden)]
        ways = fitting[-1] if fitting else wanted[0]
        larger = [n for n in wanted if n >= ways]
        for held in (True, False):
            for n in larger if held else [ways, *reversed(wanted)]:
                point = {**params, "WAYS": n, "HELD": held}
                if self.illegal(p, point) is None:
                    return point
        return super().defaults(p)

    def seconds(self, p: Problem, cost: Cost) -> float:
        """The product over all steps fills the device; each step then takes a grid barrier or a launch."""
        node, op = p.node, p.node.as_(Recurrent)
        steps, batch, _ = node.x.shape
        params = self.defaults(p)
        chunks = ceil_div(batch, params["NB"]) * directions(op)
        groups = max(1, chunks * _group_count(p, params))
        ticks = steps * pass_count(op)
        walk = 2.0 * steps * batch * node.input(2).type.count / p.device.peak_flops / self.share(p.device)
        walk *= max(1.0, p.device.compute_units / groups)
        each = p.device.launch_s if params["WALK"] == "launches" else 0.0
        if params["WALK"] == "meet":
            each = SequentialSteps.named(self.name, p.device).step_s
        return walk + ticks * each + 3 * p.device.launch_s + cost.bytes / p.device.bandwidth

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(Recurrent)
        steps, batch, _ = node.x.shape
        count, hidden, gates = directions(op), op.hidden, GATES[op.kind]
        block, ways, nb = params["BLOCK"], params["WAYS"], params["NB"]
        shares, chunks = _shares(node, params), ceil_div(batch, nb)
        meets = params["WALK"] == "meet"
        z = Scratch("gates", max(1, steps * batch * count * shares * block * gates) * node.x.type.storage.size)
        states = Scratch("states", max(1, 4 * count * batch * hidden) * acc_bytes(node))
        words = 1 + count * max(1, chunks)
        sync = Scratch("sync", 4 * words)
        bias, lens, h0, c0, peep = (node.get(i) for i in (3, 4, 5, 6, 7))
        recurrent = block_weight(node, node.input(2), f"resident{ways}", block, partial(persistent_rows, ways))
        added = None if bias is None else block_weight(node, bias, "bias", block, bias_blocks)
        holes = None if peep is None else block_weight(node, peep, "peepholes", block, peephole_blocks)
        defines = {
            "STORAGE": STORAGE[node.x.type.storage],
            "PACK": 1,
            "KIND": KINDS[op.kind],
            "RESET_LATE": op.kind == "gru" and op.linear_before_reset,
            "COUPLED": op.input_forget,
            "BACKWARD": op.direction == "reverse",
            "HAS_BIAS": bias is not None,
            "HAS_LENS": lens is not None,
            "HAS_H0": h0 is not None,
            "HAS_C0": c0 is not None,
            "HAS_PEEP": peep is not None,
            "BLOCK": block,
            "WAYS": ways,
            "CHUNKS": _chunks(node, params),
            "NB": nb,
        }
        # Where an input is absent its define is 0 and z, never read through it, takes its place.
        names = ("bias", "peep", "lens", "h0", "c0")
        args: Args = {"z": z, "r": recurrent, "T": steps, "B": batch, "H": hidden, "directions": count}
        args |= {k: z if v is None else v for k, v in zip(names, (added, holes, lens, h0, c0), strict=True)}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, z, z), strict=False))
        args |= {"states": states, "sync": sync if meets else z, "shares": shares}
        args["work"] = Local(_work_bytes(node, params))
        prelude = activation_macros(node, 1, p.device)
        items, ticks = gates * block * ways, steps * pass_count(op)

        def walk(groups: int, first: Any, last: Any, **more: bool) -> Launch:
            given = {"HELD": False, "MEETS": False, "REPAIRS": False, **more}
            return Launch(
                "recurrent_resident",
                {**args, "first": first, "last": last},
                (items * groups, count, chunks),
                (items, 1, 1),
                {**defines, **given},
                prelude,
            )

        launches = input_product(node, z, block, p.device)
        if meets:
            words_given: Args = {"sync": sync, "count": words, "failed": np.uint32(0)}
            begin = Launch("recurrent_begin", words_given, (words,), None, dict(defines), prelude)
            groups = _group_count(p, params)
            return [
                *launches,
                begin,
                walk(groups, 0, ticks, HELD=params["HELD"], MEETS=True),
                walk(1, 0, ticks, REPAIRS=True),
            ]
        if params["WALK"] == "alone":
            return [*launches, walk(1, 0, ticks)]
        turns = [(k, k + 1) for k in range(ticks)]
        return [*launches, *(walk(shares, first, last) for first, last in turns)]


def has_grid_barrier(device: DeviceInfo) -> bool:
    """Whether a work-group per compute unit is always resident and can spin on memory: NVIDIA with inline PTX."""
    return PTX_MMA in device.quirks


def max_resident_groups(p: Problem, nb: int) -> int:
    """Work-groups available to `nb` sequences of a direction if all groups are resident at once."""
    sets = max(1, ceil_div(p.node.x.shape[1], nb) * directions(p.node.as_(Recurrent)))
    return int(p.device.compute_units // sets)


def persistent_rows(ways: int, r: Array, gates: int, block: int) -> Array:
    """r[D, gates * H, H] as [D, shares, chunks, gates, block, ways, 4], zero-padded past H."""
    d, _, hidden = r.shape
    rows = in_blocks(r.reshape(d, abs(gates), hidden, hidden), block)
    chunks = ceil_div(hidden, 4 * ways)
    wide = np.zeros((*rows.shape[:-1], chunks * ways * 4), r.dtype)
    wide[..., :hidden] = rows
    return np.moveaxis(wide.reshape(*rows.shape[:-1], chunks, ways, 4), -3, 2)


def _shares(node: Node, params: Params) -> int:
    return ceil_div(node.as_(Recurrent).hidden, params["BLOCK"])


def _chunks(node: Node, params: Params) -> int:
    return ceil_div(node.as_(Recurrent).hidden, 4 * params["WAYS"])


def _group_count(p: Problem, params: Params) -> int:
    """Work-groups for NB sequences of a direction."""
    if params["WALK"] == "alone":
        return 1
    shares = _shares(p.node, params)
    return min(shares, max_resident_groups(p, params["NB"])) if params["WALK"] == "meet" else shares


def _holds(node: Node, params: Params) -> bool:
    """Whether a work-group's weights fit the registers of its work-items."""
    words = 4 * _chunks(node, params) * acc_bytes(node) // 4
    items = GATES[node.as_(Recurrent).kind] * params["BLOCK"] * params["WAYS"]
    other = OTHER_WORDS + 4 * params["NB"]
    return words <= HELD_WORDS and items * (words + other) <= REGISTERS


def _work_bytes(node: Node, params: Params) -> int:
    """Bytes of local memory: the kernel's `work`."""
    op = node.as_(Recurrent)
    rows, ways = GATES[op.kind] * params["BLOCK"], params["WAYS"]
    late = params["BLOCK"] if op.kind == "gru" and op.linear_before_reset else 0
    each = _chunks(node, params) * ways * 4 + ways * (rows + 1) + 2 * rows
    return int(params["NB"] * each + rows + late + 3 * params["BLOCK"]) * acc_bytes(node)
