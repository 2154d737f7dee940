"""ModelImporter: one graph to import, with its functions, constants and cached stages."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from threading import Lock, RLock
from typing import Any

from ... import knobs
from ...ir import Array
from ..proto.functions import FunctionTable
from ..proto.graphdef import GraphDef
from .name_scopes import Item, make_item
from .symbolic_dims import ALL_STATIC, DimSpec, DynamicDims, declared_dims


class ModelImporter:
    """Imports one graph (of a model or of a loop body) for any input shapes.

    loop: the label of the loop whose body it is; '' for a model.
    """

    def __init__(
        self,
        graph: GraphDef,
        functions: FunctionTable | None = None,
        constants: Mapping[str, Array] | None = None,
        symbols: bool | None = None,
        body_dims: Mapping[str, DimSpec] | None = None,
    ) -> None:
        """Initialise an importer; `constants` are captured values of a loop body, by their names in the body.

        symbols: whether dynamic dimensions are symbols; default: OPALITE_SYMBOLS. body_dims: dynamic dimensions of a
        body's inputs; None for a model.
        """
        self.graph = graph
        self.loop = ""
        self.symbols = bool(knobs.get("OPALITE_SYMBOLS")) if symbols is None else symbols
        self._body_dims = body_dims
        self.name = graph.name or "model"
        self.functions = functions or {}
        self.outputs = tuple(v.name for v in graph.outputs)
        self.lock = Lock()  # of the caches
        self.importing = RLock()
        self.separator = _free_separator(graph)
        self.constants: ChainMap[str, Array] = ChainMap(graph.constants, dict(constants or {}))
        self.items = tuple(make_item(node) for node in graph.nodes)
        self.first_stages: dict[frozenset[str], Any] = {}  # of segments.first_stage
        self._nested: dict[Any, ModelImporter] = {}

    def dynamic_dims(self) -> DynamicDims:
        """Return the dynamic dimensions of the inputs."""
        if not self.symbols:
            return ALL_STATIC
        if self._body_dims is not None:
            return DynamicDims(self._body_dims, frozenset(), automatic=True)
        declared: dict[str, DimSpec] = {}
        for info in self.graph.inputs:
            if info.kind == "tensor" and info.shape is not None:
                declared[info.name] = declared_dims(info.shape)
        return DynamicDims(declared, frozenset(), automatic=True)

    def nested(
        self, item: Item, body: GraphDef, constants: Mapping[str, Array], dims: Mapping[str, DimSpec]
    ) -> ModelImporter:
        """Return the importer of a loop body, the same for all shapes of the node; dims: its dynamic dimensions."""
        key = (item.outputs, item.node.op_type, body.name, *constants)
        if key not in self._nested:
            self._nested[key] = ModelImporter(body, self.functions, constants, self.symbols, dims)
            self._nested[key].loop = item.node.label
        return self._nested[key]


def _free_separator(graph: GraphDef) -> str:
    """Return a separator that occurs in no name of the graph; names of inlined graphs contain it."""
    names = [o for node in graph.nodes for o in node.outputs]
    mark = "@"
    while any(mark in n for n in names):
        mark += "@"
    return mark
