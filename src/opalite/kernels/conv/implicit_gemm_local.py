"""Convolution on GPUs as an implicit GEMM with tiles in local memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import keeps_zeros, packed_epilogue
from ..fma import tile_parameters as fma
from ..fma.tile_parameters import GemmSize, full_operands
from ..kernel import Params, register
from ..launch import STORAGE, Args, Array, Launch, Scratch, Weight, ceil_div
from .direct_split_k import seconds_relative_to_split_k
from .pack_filters import ConvProblem, Groups, PackedConv, bias_weight, pack_filters, taps_refusal

PACK = 4


@register
class ConvGemmLocal(PackedConv):
    """NC4HW4 to NC4HW4 by register tiles of positions by output channels."""

    space = fma.SPACE

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        if why := local_refusal(p.device):
            return why
        if node.as_(Convolution).group == node.x.shape[1]:
            return "one channel to a group leaves nothing to share"
        return p.packed_refusal or taps_refusal(p.window) or p.merge_refusal(PACK, PACK)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return fma.tile_illegal(params, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        return fma.find_tile(_sums(p), p.device)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        cycles = fma.tile_cycles(self.defaults(p), _sums(p), p.device)
        return seconds_relative_to_split_k(p, cost, cycles)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y, win = node.x, node.get(2), node.y, p.window
        storage, g, taps = y.type.storage, p.groups(PACK, PACK), math.prod(p.window.kernel)
        positions = p.positions
        (rows, columns), group = fma.tile_size(params), fma.group_size(params)
        turns = ceil_div(taps * g.in_blocks * PACK, fma.slab(params))
        form, pack = filter_panels(g, taps, params, storage)
        epilogue = packed_epilogue(node, p.device)
        weights = Weight(node.input(1), form, pack)
        blocks, parts = g.count * g.out_blocks, params["PARTS"]
        args: Args = {"x": x, "weights": weights, "positions": positions, **win.args()}
        args |= {"groups": g.count, "turns": turns, "ib": g.in_blocks, "ob": g.out_blocks, "m": y.shape[1]}
        if not win.is_pointwise:
            args["quads"] = _quad_table(taps, g.in_blocks, turns * fma.slab(params) // PACK)
        finish: Args = {"y": y, **epilogue.args}
        finish |= {} if bias is None else {"bias": bias_weight(bias, PACK, storage)}
        defines = win.defines() | fma.tile_defines(params) | {"PACK": PACK, "STORAGE": STORAGE[storage]}
        defines |= {"HAS_BIAS": bias is not None, "MASK": y.shape[1] % PACK != 0 and not keeps_zeros(node)}
        defines |= {"POINTWISE": win.is_pointwise, "WIDE": taps > 31}
        grid = (ceil_div(positions, rows) * group, g.count * ceil_div(g.out_blocks * PACK, columns), parts)
        if parts == 1:
            return [Launch("conv_local", {**args, **finish}, grid, (group, 1, 1), defines, epilogue.prelude)]
        sums = Scratch("parts", parts * blocks * positions * PACK * 4)
        finish |= {"parts": sums, "positions": positions, "blocks": blocks}
        finish |= {"m": y.shape[1], "spatial": math.prod(win.out)}
        return [
            Launch("conv_local", {**args, "parts": sums}, grid, (group, 1, 1), defines, epilogue.prelude),
            Launch("conv_parts", finish, (positions, blocks), None, defines, epilogue.prelude),
        ]


def local_refusal(device: DeviceInfo) -> str | None:
    """The reason why tiles in local memory do not suit `device`, or None."""
    if device.on_host:
        return "a CPU has no local memory apart: tiles of it would leave the registers"
    if not device.local_mem_dedicated:
        return "the device's local memory is part of global memory"
    if next(fma.legal_tiles(device), None) is None:
        return f"no tile fits work-groups of {device.max_work_group_size} with {device.local_mem} bytes"
    return None


def supports_local_tiles(device: DeviceInfo) -> bool:
    """Whether tiles in local memory suit `device`."""
    return local_refusal(device) is None


def filter_panels(g: Groups, taps: int, params: Params, storage: DType) -> tuple[str, Callable[[Array], Array]]:
    """(form, function) that packs filters of `taps` as [groups, panels, turns * SLAB, BN]."""
    form, panels = fma.to_panels(params, storage)

    def pack(data: Array) -> Array:
        # [groups, taps, in_blocks, PACK, out_blocks, PACK]
        dense = pack_filters(data, g, g.out_blocks, storage)[:, 0].swapaxes(1, 2)
        return panels(dense.reshape(g.count, taps * g.in_blocks * PACK, -1))

    return f"filter panels {g.count}x{g.merged} groups, {form}", pack


def _sums(p: ConvProblem) -> GemmSize:
    """The GEMM of each group: positions by output channels; terms are taps and input channels."""
    g = p.groups(PACK, PACK)
    terms = math.prod(p.window.kernel) * g.in_blocks * PACK
    return GemmSize(p.positions, g.out_blocks * PACK, terms, g.count, full_operands(p.node))


def _quad_table(taps: int, in_blocks: int, count: int) -> Array:
    """int32[count, 2]: block and tap of each quad; entries past the last quad point past the end."""
    table = np.full((count, 2), (0, taps), np.int32)
    blocks = operator.index(in_blocks)  # the filter's channels, which are known even if the input's are symbolic
    table[: taps * blocks, 1], table[: taps * blocks, 0] = np.divmod(np.arange(taps * blocks), blocks)
    return table
