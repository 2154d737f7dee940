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
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Args, Array, Launch, Local, Scratch, ceil_div
from .rnn_problem import RecurrentProblem, activation_macros, bias_blocks, in_blocks, peephole_blocks
from .rnn_unit_blocks import input_product

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
    problem = RecurrentProblem
    space = {
        "WALK": ("meet", "launches", "alone"),
        "BLOCK": (4, 8, 2, 16, 1, 32),
        "WAYS": (8, 16, 32, 4, 2, 1),
        "NB": (1, 2, 4, 8),
        "HELD": (True, False),
    }

    def refuse(self, p: RecurrentProblem) -> str | None:
        if p.op.rounds_state:
            return "a group does not know the range of the state"
        return p.weights_refusal()

    def illegal(self, p: RecurrentProblem, params: Params) -> str | None:
        device = p.device
        items = p.gates * params["BLOCK"] * params["WAYS"]
        if items > device.max_work_group_size:
            return f"the device runs at most {device.max_work_group_size} work-items in a group"
        if params["NB"] > params["WAYS"]:
            return "a work-item would have several rows to add up"
        if _work_bytes(p, params) > device.local_mem:
            return f"the state does not fit the {device.local_mem} bytes of local memory"
        if params["WALK"] == "meet":
            if not has_grid_barrier(device):
                return "groups of this device are not known to run at once"
            if max_resident_groups(p, params["NB"]) < 1:
                return "there are more sequences than compute units"
        elif params["WALK"] == "launches" and (refusal := p.split_refusal()) is not None:
            return refusal
        if params["HELD"] and (params["WALK"] != "meet" or _group_count(p, params) < _shares(p, params)):
            return "a group has several shares"
        if params["HELD"] and not _holds(p, params):
            return "the weights do not fit the registers"
        return None

    def defaults(self, p: RecurrentProblem) -> Params:
        node, device = p.node, p.device
        op = p.op
        gates, batch = p.gates, node.x.shape[1]
        walk = "meet" if has_grid_barrier(device) else "launches" if p.split_refusal() is None else "alone"
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

    def seconds(self, p: RecurrentProblem, cost: Cost) -> float:
        """The product over all steps fills the device; each step then takes a grid barrier or a launch."""
        node = p.node
        steps, batch, _ = node.x.shape
        params = self.defaults(p)
        chunks = ceil_div(batch, params["NB"]) * p.directions
        groups = max(1, chunks * _group_count(p, params))
        ticks = steps * p.passes
        walk = 2.0 * steps * batch * node.input(2).type.count / p.device.peak_flops / self.share(p.device)
        walk *= max(1.0, p.device.compute_units / groups)
        each = p.device.launch_s if params["WALK"] == "launches" else 0.0
        if params["WALK"] == "meet":
            each = SequentialSteps.named(self.cost_name, p.device).step_s
        return walk + ticks * each + 3 * p.device.launch_s + cost.bytes / p.device.bandwidth

    def launch(self, p: RecurrentProblem, params: Params) -> list[Launch]:
        node, op = p.node, p.op
        steps, batch, _ = node.x.shape
        count, hidden, gates = p.directions, op.hidden, p.gates
        block, ways, nb = params["BLOCK"], params["WAYS"], params["NB"]
        shares, chunks = _shares(p, params), ceil_div(batch, nb)
        meets = params["WALK"] == "meet"
        z = Scratch("gates", max(1, steps * batch * count * shares * block * gates) * node.x.type.storage.size)
        states = Scratch("states", max(1, 4 * count * batch * hidden) * p.acc_bytes)
        words = 1 + count * max(1, chunks)
        sync = Scratch("sync", 4 * words)
        lens, h0, c0 = (node.get(i) for i in (4, 5, 6))
        recurrent = p.block_weight(2, f"resident{ways}", block, partial(persistent_rows, ways))
        assert recurrent is not None
        added = p.block_weight(3, "bias", block, bias_blocks)
        holes = p.block_weight(7, "peepholes", block, peephole_blocks)
        defines = p.defines | {"PACK": 1, "BLOCK": block, "WAYS": ways, "CHUNKS": _chunks(p, params), "NB": nb}
        # Where an input is absent its define is 0 and z, never read through it, takes its place.
        names = ("bias", "peep", "lens", "h0", "c0")
        args: Args = {"z": z, "r": recurrent, "T": steps, "B": batch, "H": hidden, "directions": count}
        args |= {k: z if v is None else v for k, v in zip(names, (added, holes, lens, h0, c0), strict=True)}
        args |= dict(zip(("y", "yh", "yc"), (*node.outputs, z, z), strict=False))
        args |= {"states": states, "sync": sync if meets else z, "shares": shares}
        args["work"] = Local(_work_bytes(p, params))
        prelude = activation_macros(p, 1)
        items, ticks = gates * block * ways, steps * p.passes

        def walk(groups: int, first: Any, last: Any, **more: bool) -> Launch:
            own = defines | {"HELD": False, "MEETS": False, "REPAIRS": False, **more}
            grid, turn = (items * groups, count, chunks), {**args, "first": first, "last": last}
            return Launch("recurrent_resident", turn, grid, (items, 1, 1), own, prelude)

        launches = input_product(p, z, block)
        if meets:
            words_given: Args = {"sync": sync, "count": words, "failed": np.uint32(0)}
            begin = Launch("recurrent_begin", words_given, (words,), None, dict(defines), prelude)
            groups = _group_count(p, params)
            meet = walk(groups, 0, ticks, HELD=params["HELD"], MEETS=True)
            return [*launches, begin, meet, walk(1, 0, ticks, REPAIRS=True)]
        if params["WALK"] == "alone":
            return [*launches, walk(1, 0, ticks)]
        turns = [(k, k + 1) for k in range(ticks)]
        return [*launches, *(walk(shares, first, last) for first, last in turns)]


def has_grid_barrier(device: DeviceInfo) -> bool:
    """Whether a work-group per compute unit is always resident and can spin on memory: NVIDIA with inline PTX."""
    return PTX_MMA in device.quirks


def max_resident_groups(p: RecurrentProblem, nb: int) -> int:
    """Work-groups available to `nb` sequences of a direction if all groups are resident at once."""
    sets = max(1, ceil_div(p.node.x.shape[1], nb) * p.directions)
    return int(p.device.compute_units // sets)


def persistent_rows(ways: int, r: Array, gates: int, block: int) -> Array:
    """r[D, gates * H, H] as [D, shares, chunks, gates, block, ways, 4], zero-padded past H."""
    d, _, hidden = r.shape
    rows = in_blocks(r.reshape(d, abs(gates), hidden, hidden), block)
    chunks = ceil_div(hidden, 4 * ways)
    wide = np.zeros((*rows.shape[:-1], chunks * ways * 4), r.dtype)
    wide[..., :hidden] = rows
    return np.moveaxis(wide.reshape(*rows.shape[:-1], chunks, ways, 4), -3, 2)


def _shares(p: RecurrentProblem, params: Params) -> int:
    return ceil_div(p.op.hidden, params["BLOCK"])


def _chunks(p: RecurrentProblem, params: Params) -> int:
    return ceil_div(p.op.hidden, 4 * params["WAYS"])


def _group_count(p: RecurrentProblem, params: Params) -> int:
    """Work-groups for NB sequences of a direction."""
    if params["WALK"] == "alone":
        return 1
    shares = _shares(p, params)
    return min(shares, max_resident_groups(p, params["NB"])) if params["WALK"] == "meet" else shares


def _holds(p: RecurrentProblem, params: Params) -> bool:
    """Whether a work-group's weights fit the registers of its work-items."""
    words = 4 * _chunks(p, params) * p.acc_bytes // 4
    items = p.gates * params["BLOCK"] * params["WAYS"]
    other = OTHER_WORDS + 4 * params["NB"]
    return words <= HELD_WORDS and items * (words + other) <= REGISTERS


def _work_bytes(p: RecurrentProblem, params: Params) -> int:
    """Bytes of local memory: the kernel's `work`."""
    rows, ways = p.gates * params["BLOCK"], params["WAYS"]
    late = params["BLOCK"] if p.resets_late else 0
    each = _chunks(p, params) * ways * 4 + ways * (rows + 1) + 2 * rows
    return int(params["NB"] * each + rows + late + 3 * params["BLOCK"]) * p.acc_bytes
