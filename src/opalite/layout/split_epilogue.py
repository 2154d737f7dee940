"""Split a node's epilogue off again, if no kernel computes both."""

from __future__ import annotations

from ..ir.graph import Graph, Node, new_value
from ..ir.patch import Patch, apply_patches
from ..ops.elementwise import Elementwise


def unlink(graph: Graph, node: Node) -> tuple[Node, Node]:
    """(the node without its epilogue, the epilogue as a node), inserted in `graph` in place of `node`.

    An epilogue is fused if a kernel takes it at the current sizes; at open sizes the kernel may refuse it.
    """
    assert node.epilogue is not None
    arity = node.op.arity
    given = node.inputs[:arity]
    (made,) = node.op.infer_shape([None if v is None else v.type for v in given])
    own = node.with_(inputs=given, outputs=[new_value(node.y.name, made)], epilogue=None)
    own.outputs[0].producer = own
    rest = node.with_(op=Elementwise(node.epilogue), inputs=[own.y, *node.inputs[arity:]], epilogue=None)
    apply_patches(graph, [Patch.replacing(node, own, rest)], "unlink")
    return own, rest
