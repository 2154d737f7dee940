"""A session without a device: importer, then the operators' NumPy references. It shows how to drive an import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opalite.importer import ImportRun, ModelImporter, check_feeds, load_model
from opalite.importer.walk.constant_evaluation import evaluate_graph
from opalite.ir import check_graph


class NumpySession:
    """Runs a model by references. `segments` counts the segment graphs of the last run, `imported` those ever seen.

    symbols: whether open dimensions are symbols; by default as the knob says.
    """

    def __init__(self, source: Any, symbols: bool | None = None) -> None:
        self.model = load_model(source)
        self.importer = self.model.importer
        if symbols is not None:
            self.importer = ModelImporter(self.model.graph, self.model.functions, symbols=symbols)
        self.imported: set[Any] = set()
        self.segments = 0
        self.tasks: list[Any] = []

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The model's outputs in order."""
        self.segments, self.tasks = 0, []
        return self.run_importer(self.importer, check_feeds(self.model, feeds))

    def run_importer(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> list[Any]:
        """Also the Runner of loop bodies."""
        run_ = ImportRun(importer, feeds, self.run_importer)
        while run_.segment is not None:
            segment = run_.segment
            self.segments += 1
            if segment not in self.imported:
                check_graph(segment.graph, "import")
                self.imported.add(segment)
            run_.advance(evaluate_graph(segment.graph_at(run_.sizes), run_.feeds))
        self.tasks += run_.tasks_run
        return run_.outputs
