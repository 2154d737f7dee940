"""QuantizedMatMul of many rows on GPUs: one launch dequantises the matrix to scratch memory, then a float matmul."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NoReturn

from ...cost.cost_tables import Unpacking
from ...ir.constants.lazy_array import LazyArray
from ...ir.graph import Value
from ...ir.tensor_type import TensorType
from ...ops.matmul import MatMul
from ...ops.operator import Cost
from ...ops.quantized_matmul import QuantizedMatMul
from ..kernel import Kernel, Params, register
from ..launch import STORAGE, Arg, Launch, Scratch, Weight, ceil_div
from ..matmul.gemm_gpu import MatmulLocalTile, MatmulRegisterTile
from ..matmul.matmul_mma import MatmulMma, MatmulMmaStaged
from ..matmul.matmul_problem import MatmulProblem
from ..matmul.matmul_wgmma import MatmulWgmma
from .pack_low_bit import codebook_defines, packed_args, panels_of, take_zero
from .quantized_matmul_cpu import QuantizedMatmulKernel


class DequantizedProblem(MatmulProblem):
    """A QuantizedMatMul node with the MatMul of its dequantised matrix."""

    @cached_property
    def packed(self) -> MatmulProblem:
        """The MatMul with the matrix as a constant, which kernels pack in their own order."""
        return self._product(is_const=True)

    @cached_property
    def plain(self) -> MatmulProblem:
        """The MatMul with the matrix in row-major order [K, N]."""
        return self._product(is_const=False)

    def _product(self, *, is_const: bool) -> MatmulProblem:
        node, s = self.node, self.sizes
        type_ = TensorType(node.y.dtype, (s.k, s.n), node.y.type.place)
        data = LazyArray(type_.storage.np, type_.shape, _unread) if is_const else None
        inputs = [node.x, Value("widened", type_, data), *node.inputs[node.op.arity :]]
        # The result is a new value: the graph's value has the original node as its producer.
        made = node.with_(op=MatMul(trans_a=False, trans_b=False), inputs=inputs)
        return MatmulProblem(made, self.device)


def _unread() -> NoReturn:
    raise AssertionError("the matrix is dequantised on the device")


class DequantizeThenMatmul(QuantizedMatmulKernel):
    """Base class: one launch dequantises the matrix, then `product`, a MatMul kernel, runs.

    form: memory order that `product` reads, a constant of dequantize_weights.cl.
    """

    rank = 1
    problem = DequantizedProblem
    source = "quantized/dequantize_weights.cl"
    on_gpu = True
    product: Kernel
    form: int

    def inner(self, p: DequantizedProblem) -> MatmulProblem:
        """The MatMul of the dequantised matrix."""
        return p.packed if self.form else p.plain

    def refuse(self, p: MatmulProblem) -> str | None:
        assert isinstance(p, DequantizedProblem)
        if why := super().refuse(p) or self.product.refuse(self.inner(p)):
            return why
        nbytes = self.inner(p).node.input(1).type.nbytes
        return f"{nbytes} bytes of a dequantised matrix exceed a buffer" if nbytes > p.device.max_alloc // 2 else None

    def illegal(self, p: DequantizedProblem, params: Params) -> str | None:
        return self.product.illegal(self.inner(p), params)

    def defaults(self, p: DequantizedProblem) -> Params:
        return self.product.defaults(self.inner(p))

    def points(self, p: DequantizedProblem) -> Iterator[Params]:
        return self.product.points(self.inner(p))

    def seconds(self, p: DequantizedProblem, cost: Cost) -> float:
        inner = self.inner(p)
        size = p.sizes.k * p.sizes.n
        moved = size * p.node.as_(QuantizedMatMul).bits / 8 + inner.node.input(1).type.nbytes
        steps = 1 + Unpacking.of(p.device).in_registers  # including stores
        operations = 2 * size * steps / (p.device.peak_flops * self.share(p.device))
        product = self.product.seconds(inner, inner.node.cost())
        return product + max(operations, moved / p.device.bandwidth) + p.device.launch_s

    def launch(self, p: DequantizedProblem, params: Params) -> list[Launch]:
        node, op, s = p.node, p.node.as_(QuantizedMatMul), p.sizes
        inner, panels = self.inner(p), panels_of(p.device)
        launches = self.product.launch(inner, params)
        args, own = packed_args(node.input(1), node.input(2), node.get(3), op.bits, op.trans_b, panels)
        args |= {"N": s.n, "K": s.k, "block": op.block, "zero": take_zero(args, op.bits)}
        own |= {"STORAGE": STORAGE[node.y.type.storage], "PACK": 1, "WIDTH": panels.width, "FORM": self.form}
        table, values = codebook_defines(p.device, op.table)
        own |= table
        grid: tuple[int, ...] = (ceil_div(s.n, panels.width) * panels.width, ceil_div(s.k, 32 // op.bits))
        to = Scratch("widened", inner.node.input(1).type.nbytes)
        if self.form:
            tiles, steps, columns = self.tiles(launches[0], params)
            count = tiles * ceil_div(steps, 2) * (columns if self.form == 3 else columns // 2)
            args |= {"count": count, "steps": steps}
            own["TILE"] = columns
            grid, to = (count,), Scratch("widened", tiles * steps * columns * 16 * 2)
        matrix, y = inner.node.input(1), inner.node.y

        def given(a: Arg) -> Arg:
            if a is y:
                return node.y
            return to if a is matrix or (isinstance(a, Weight) and a.value is matrix) else a

        products = [replace(x.replace_arguments(given), source=x.source or self.product.source) for x in launches]
        return [Launch("widen", {**args, "to": to}, grid, defines=own, prelude=values), *products]

    def tiles(self, launch: Launch, params: Params) -> tuple[int, int, int]:
        """(tiles along columns, steps of 16 terms, columns per tile) of a matrix-unit product."""
        tiles, steps = launch.args["tiles"], launch.args["steps"]
        assert isinstance(tiles, int)
        assert isinstance(steps, int)
        return tiles, steps, 16


@register
class DequantizeThenMma(DequantizeThenMatmul):
    """Dequantises, then runs MatmulMma."""

    product, form = MatmulMma(), 1
    space = MatmulMma.space


@register
class DequantizeThenMmaStaged(DequantizeThenMatmul):
    """Dequantises, then runs MatmulMmaStaged."""

    product, form = MatmulMmaStaged(), 2
    space = MatmulMmaStaged.space


@register
class DequantizeThenWgmma(DequantizeThenMatmul):
    """Dequantises, then runs MatmulWgmma."""

    product, form = MatmulWgmma(), 3
    space = MatmulWgmma.space

    def tiles(self, launch: Launch, params: Params) -> tuple[int, int, int]:
        wide, chunks = launch.args["wide"], launch.args["chunks"]
        assert isinstance(wide, int)
        assert isinstance(chunks, int)
        return wide, 2 * chunks, int(params["BN"])


@register
class DequantizeThenLocalTile(DequantizeThenMatmul):
    """Dequantises, then runs MatmulLocalTile."""

    product, form = MatmulLocalTile(), 0
    space = MatmulLocalTile.space
    half_sums = True


@register
class DequantizeThenRegisterTile(DequantizeThenMatmul):
    """Dequantises, then runs MatmulRegisterTile."""

    product, form = MatmulRegisterTile(), 0
    space = MatmulRegisterTile.space
    half_sums = True
