"""The longest loop of a work-item, for drivers that end long loops early."""

from __future__ import annotations

import math

from ..ir.graph import Node
from ..ops.attention import Attention
from ..ops.conv import Conv, ConvTranspose
from ..ops.cumulative import Cumulative
from ..ops.integer_conv_matmul import IntegerConv
from ..ops.linear_attention import LinearAttention
from ..ops.matmul import MatrixProduct, matrix_dims
from ..ops.nms import NonMaxSuppression
from ..ops.normalize import Normalize
from ..ops.pairwise_distance import PairwiseDistance
from ..ops.pool import Pool
from ..ops.recurrent import Recurrent
from ..ops.reduce import ArgReduce, Reduce
from ..ops.scatter import Scatter
from ..ops.softmax import Softmax
from ..ops.topk import TopK
from ..ops.tree_ensemble import TreeEnsemble

LONGEST = 65_535 // 4
"""Most elements in a work-item's loops on a driver that ends loops after 65,535 iterations.

Several loops pass over the same elements, and iterations of outer loops count too.
"""


_VECTOR = 4  # narrowest vectors of these kernels
_GROUP = 32  # least work-items that share the rows of a recurrent layer


def longest_kernel_loop(node: Node) -> int:
    """The largest loop trip count, in elements, of a work-item of `node` in any kernel."""
    op, x = node.op, node.x.shape if node.inputs else ()
    match op:
        case Reduce():
            return math.prod(x[a] for a in op.axes)
        case ArgReduce() | Cumulative() | Softmax() | TopK():
            return x[op.axis]
        case Normalize():
            return math.prod(x[1:])
        case MatrixProduct():
            return matrix_dims(x, op.trans_a)[1]
        case Conv() | IntegerConv():
            return math.prod(node.input(1).shape[1:])
        case ConvTranspose():
            return x[1] * math.prod(node.input(1).shape[2:])
        case Pool():
            return math.prod(op.kernel)
        case Attention():
            return sum(math.prod(node.input(i).shape[-2:]) for i in (1, 2)) // _VECTOR
        case LinearAttention():
            return node.input(1).shape[1] * node.input(3).shape[2]
        case Recurrent():
            rows = sum(node.input(i).shape[1] // op.hidden * node.input(i).shape[2] for i in (1, 2))
            return x[0] * rows * -(-op.hidden // _GROUP) // _VECTOR
        case NonMaxSuppression():
            return math.prod(node.input(1).shape)
        case Scatter():
            return node.input(1).type.count
        case TreeEnsemble():
            return node.input(3).type.count * max(1, op.depth)
        case PairwiseDistance():
            return x[1]
    return 1
