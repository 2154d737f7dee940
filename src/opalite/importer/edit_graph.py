"""edit_graph: a caller's changes to a model, applied to a GraphDef of a format without messages."""

from __future__ import annotations

from dataclasses import replace

from ..errors import OptionError
from ..ir.model_edits import ModelEdits
from .proto.decode import ValueInfo
from .proto.graphdef import GraphDef


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
    return replace(graph, inputs=tuple(_sized(v, edits) for v in graph.inputs), constants=constants)


def _sized(info: ValueInfo, edits: ModelEdits) -> ValueInfo:
    if info.shape is None:
        return info
    if edits.open_sizes:
        return replace(info, shape=(None,) * len(info.shape))
    return replace(info, shape=tuple(edits.dims.get(d, d) if isinstance(d, str) else d for d in info.shape))
