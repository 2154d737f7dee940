"""evaluate_graphdef: outputs of a graph without inputs, computed when a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir import Array
from ..proto.functions import FunctionTable
from ..proto.graphdef import GraphDef
from .constant_evaluation import evaluate_graph
from .import_run import ImportRun
from .model_importer import ModelImporter


def evaluate_graphdef(graph: GraphDef, functions: FunctionTable) -> list[Array]:
    """Compute the outputs of `graph`, which has no inputs, by the operators' NumPy references."""
    return [np.asarray(a) for a in _run(ModelImporter(graph, functions), {})]


def _run(importer: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
    run = ImportRun(importer, feeds, _run)
    while run.segment is not None:
        segment = run.segment
        run.advance(evaluate_graph(segment.graph_at(run.sizes), [np.asarray(a) for a in run.feeds]))
    return run.outputs
