"""Details of operators, as LiteRT's Interpreter gives them: index, name, tensors and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..importer.tflite.read.subgraphs import SubgraphReader
from ..importer.tflite.read.tensors import TensorInfo
from .tensor_details import numpy_type


def describe_operators(reader: SubgraphReader, tensors: Sequence[TensorInfo]) -> list[dict[str, Any]]:
    """Return the details of the first subgraph's operators. tensors: its tensors."""
    tables = reader.tables
    found = []
    for index, operator in enumerate(tables.tables(reader.graphs[0], "Operators")):
        inputs, outputs = tables.ints(operator, "Inputs"), tables.ints(operator, "Outputs")
        found.append(
            {
                "index": index,
                "op_name": reader.codes[operator.OpcodeIndex()][0],
                "inputs": np.array(inputs, np.int32),
                "outputs": np.array(outputs, np.int32),
                "operand_types": [numpy_type(tensors[i]) for i in inputs if i != -1],
                "result_types": [numpy_type(tensors[i]) for i in outputs if i != -1],
            }
        )
    return found
