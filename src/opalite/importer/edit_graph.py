"""edit_graph: a caller's changes to a model, applied to a GraphDef of a format without messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import OptionError
from ..ir.model_edits import ModelEdits, unknown_value
from .proto.decode import ValueInfo
from .proto.graphdef import GraphDef, make_graph


def edit_graph(graph: GraphDef, edits: ModelEdits | None) -> GraphDef:
    """Return the graph with open sizes set and initializers replaced. OptionError for what the format lacks."""
    if not edits:
        return graph
    if edits.external or edits.files:
        raise OptionError("external initializers are given, but the model's format has no data outside its file")
    if edits.last or edits.argmax:
        raise OptionError("the outputs of this format cannot be reduced to a text's last position")
    constants = graph.constants.copy()
    for name, array in edits.initializers.items():
        if name not in constants:
            raise OptionError(f"an initializer is given for '{name}', which is none of the model's")
        old = constants.held(name)
        if (old.dtype, old.shape) != (array.dtype, array.shape):
            raise OptionError(
                f"initializer '{name}' is {old.dtype}{list(old.shape)}, but the value given for it is {array.dtype}"
                f"{list(array.shape)}: give one of the same type and shape"
            )
        constants[name] = array
    inputs = tuple(_sized(v, edits) for v in graph.inputs)
    if not edits.outputs:
        return replace(graph, inputs=inputs, constants=constants)
    return make_graph(graph.name, inputs, _chosen(graph, edits.outputs), graph.nodes, constants)


def _chosen(graph: GraphDef, names: Sequence[str]) -> tuple[ValueInfo, ...]:
    """Return the values `names` as outputs. InputError for a name that is no value."""
    declared = {v.name: v for v in (*graph.inputs, *graph.outputs)}
    known = dict.fromkeys([*declared, *(o for n in graph.nodes for o in n.outputs if o)])
    for name in names:
        if name not in known:
            inner = {o for n in graph.nodes for g in n.graphs for i in g.nodes for o in i.outputs}
            raise unknown_value(name, known, [v.name for v in graph.outputs], inner)
    return tuple(declared.get(name) or ValueInfo(name, "tensor") for name in names)


def _sized(info: ValueInfo, edits: ModelEdits) -> ValueInfo:
    if info.shape is None:
        return info
    if edits.open_ranks:
        return replace(info, shape=None)
    if edits.open_sizes:
        return replace(info, shape=(None,) * len(info.shape))
    return replace(info, shape=tuple(edits.dims.get(d, d) if isinstance(d, str) else d for d in info.shape))
