"""Take the epilogue of a node apart from it again, where no kernel computes both."""

from __future__ import annotations

from ..ir.graph import Graph, Node, fresh_value
from ..ir.patch import Patch, apply_patches
from ..ops.elementwise import Elementwise


def unlink(graph: Graph, node: Node) -> tuple[Node, Node]:
    """The node without its epilogue, and that as a node of its own, now in the place of `node` in `graph`.

    An epilogue is linked where a kernel takes it at the sizes at hand; at open sizes the kernel may refuse it.
    """
    assert node.epilogue is not None
    arity = node.op.arity
    given = node.inputs[:arity]
    (made,) = node.op.infer_shape([None if v is None else v.type for v in given])
    own = node.with_(inputs=given, outputs=[fresh_value(node.y.name, made)], epilogue=None)
    own.outputs[0].producer = own
    rest = node.with_(op=Elementwise(node.epilogue), inputs=[own.y, *node.inputs[arity:]], epilogue=None)
    apply_patches(graph, [Patch.replacing(node, own, rest)], "unlink")
    return own, rest
