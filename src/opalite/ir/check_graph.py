"""Graph checker, run after every pass: an error names the pass and prints the neighbouring nodes."""

from __future__ import annotations

from ..errors import CheckError, OpaliteError
from .graph import Graph, Node, Value


def check_graph(graph: Graph, after: str) -> None:
    """Raise CheckError unless each value is defined once, before its uses, and has the type that its op infers."""
    defined: set[Value] = set(graph.inputs)
    names: dict[str, Value] = {v.name: v for v in graph.inputs}
    for i, node in enumerate(graph.nodes):
        for v in node.inputs:
            if v is not None and not v.is_const and v not in defined:
                _fail(graph, i, after, f"reads {v!r} before anything defines it")
        for out in node.outputs:
            if out in defined:
                _fail(graph, i, after, f"defines {out!r} again")
            if out.producer is not node:
                _fail(graph, i, after, f"{out!r} names another producer")
            other = names.setdefault(out.name, out)
            if other is not out:
                _fail(graph, i, after, f"two values are named %{out.name}")
            defined.add(out)
        _check_types(graph, i, node, after)
    for v in graph.outputs:
        if v not in defined and not v.is_const:
            raise CheckError(f"after pass '{after}': graph output {v!r} is never defined")


def _check_types(graph: Graph, i: int, node: Node, after: str) -> None:
    try:
        inferred = node.infer()
    except OpaliteError as e:
        _fail(graph, i, after, str(e))
    if len(inferred) < len(node.outputs):
        _fail(graph, i, after, f"has {len(node.outputs)} outputs, the operator gives {len(inferred)}")
    for out, want in zip(node.outputs, inferred, strict=False):
        if not out.type.fits(want):
            _fail(graph, i, after, f"says {out!r}, the operator infers {want}")


def _fail(graph: Graph, i: int, after: str, what: str) -> None:
    around = graph.nodes[max(0, i - 2) : i + 3]
    lines = "\n".join(f"  {'>' if n is graph.nodes[i] else ' '} {n!r}" for n in around)
    raise CheckError(f"after pass '{after}': {graph.nodes[i].label} {what}\n{lines}")
