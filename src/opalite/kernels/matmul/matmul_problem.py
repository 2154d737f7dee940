"""A MatMul node as kernels query it: sizes, strides, and merged batch dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ...ir.graph import Node
from ...ir.symbols import hint_of, symbolic_max
from ...ir.tensor_type import Shape
from ...ops.matmul import MatrixProduct, matrix_dims
from ..codegen.epilogue import epilogue_refusal
from ..kernel import Kernel, Problem
from ..launch import STORAGE, Args, Defines, Table, make_table


@dataclass(frozen=True)
class MatmulSizes:
    """y[z, m, n] = sum over k of a[z, m, k] * b[z, k, n], for z in `batch`.

    batch: (size, stride in a, stride in b) in matrices, outermost first; stride 0 broadcasts. a_count, b_count:
    matrices in a and b.
    """

    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    batch: tuple[tuple[int, int, int], ...]
    a_count: int
    b_count: int

    @property
    def batches(self) -> int:
        """Number of products."""
        return math.prod(size for size, _, _ in self.batch)

    @property
    def lda(self) -> int:
        """Elements from one stored row of `a` to the next."""
        return self.m if self.trans_a else self.k

    @property
    def ldb(self) -> int:
        """Elements from one stored row of `b` to the next."""
        return self.k if self.trans_b else self.n

    def args(self, b_matrix: int | None = None) -> Args:
        """The arguments for matmul/batch_offsets.cl; `b_matrix` as in `table`."""
        dims: Args = {"batch": self.table(b_matrix), "dims": max(len(self.batch), 1), "batches": self.batches}
        return {**dims, "M": self.m, "N": self.n, "K": self.k, "lda": self.lda, "ldb": self.ldb}

    def table(self, b_matrix: int | None = None) -> Table:
        """The batch as int32[dims, 3]: size, strides of a and b in elements; `b_matrix`: elements of one b."""
        a_size, b_size = self.m * self.k, self.k * self.n if b_matrix is None else b_matrix
        return make_table([(size, a * a_size, b * b_size) for size, a, b in self.batch] or [(1, 0, 0)])


class MatmulProblem(Problem):
    """A MatMul node, or one with the same sizes, such as QuantizedMatMul."""

    @cached_property
    def sizes(self) -> MatmulSizes:
        """Sizes, strides and merged batch dimensions, computed once."""
        return sizes_of(self.node)

    @property
    def has_panels(self) -> bool:
        """Whether b is one constant matrix, which kernels pack in panels."""
        return self.node.input(1).is_const and self.sizes.b_count == 1

    def refusal(self) -> str | None:
        """The reason why no matrix product kernel takes the node (epilogue, index overflow), or None."""
        node = self.node
        largest = symbolic_max(t.count for t in (node.x.type, node.input(1).type, node.y.type))
        if largest >= 1 << 31:
            return f"a tensor of {largest!r} elements is beyond 32-bit indices"
        return epilogue_refusal(node, "rows")

    def defines(self, pack: int) -> Defines:
        """Defines that all matrix product kernels share."""
        return {"STORAGE": STORAGE[self.node.y.type.storage], "PACK": pack, "TRANS_A": self.sizes.trans_a}


class MatmulKernel(Kernel):
    """Base class of MatMul kernels."""

    op = "MatMul"
    problem = MatmulProblem
    half_sums = True

    def refuse(self, p: MatmulProblem) -> str | None:
        return p.refusal()


def sizes_of(node: Node) -> MatmulSizes:
    """The sizes of a MatMul node. If one `b` serves every batch, the batches of `a` become rows."""
    a, b = node.x.shape, node.input(1).shape
    trans_a, trans_b = bool(node.as_(MatrixProduct).trans_a), bool(node.as_(MatrixProduct).trans_b)
    m, k = matrix_dims(a, trans_a)
    n = matrix_dims(b, trans_b)[1]
    a_count, b_count = math.prod(a[:-2]), math.prod(b[:-2])
    batch = merge_batch(node.y.shape[:-2], a[:-2], b[:-2])
    if b_count == 1 and not trans_a:
        return MatmulSizes(m * a_count, n, k, trans_a, trans_b, (), 1, 1)
    return MatmulSizes(m, n, k, trans_a, trans_b, batch, a_count, b_count)


def merge_batch(out: Shape, a: Shape, b: Shape) -> tuple[tuple[int, int, int], ...]:
    """(size, stride in a, stride in b) of each batch dimension, in matrices; contiguous dimensions are merged."""
    merged: list[tuple[int, int, int]] = []
    steps_a, steps_b = _steps(a, len(out)), _steps(b, len(out))
    for size, sa, sb in zip(out, steps_a, steps_b, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1:] == (sa * size, sb * size):
            size *= merged.pop()[0]
        merged.append((size, sa, sb))
    return tuple(merged)


def _steps(shape: Shape, rank: int) -> list[int]:
    full = (1,) * (rank - len(shape)) + tuple(shape)
    return [0 if size == 1 else math.prod(full[i + 1 :]) for i, size in enumerate(full)]


def skinny_rows(p: MatmulProblem, most: int) -> int:
    """Rows per work-group of a skinny product: the smallest power of two that holds its rows, at most `most`."""
    return int(min(most, 1 << max(0, hint_of(p.sizes.m) - 1).bit_length()))
