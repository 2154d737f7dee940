"""read_paddle: a program of Paddle with its parameters, as a Model."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from onnx import IR_VERSION, defs

from ....errors import ModelError, ModelFileError, ModelFormatError
from ....ir import Array
from ....ir.constants.lazy_array import LazyArray
from ....ir.constants.model_file import ModelFile
from ....ir.model_edits import ModelEdits, ModelMetadata
from ....ir.model_paths import params_of
from ...edit_graph import edit_graph
from ...model import Model, check_model
from ...proto.constants import Constants
from ...proto.graphdef import make_graph
from ...proto.op_schemas import PADDLE
from .nodes import Program
from .params import read_combined, read_separate
from .pir import read_pir
from .program_desc import read_program

_DAMAGE = (IndexError, KeyError, ValueError, TypeError, OverflowError, AttributeError, MemoryError, RecursionError)
"""Exceptions of a damaged program that no check has found."""


def read_paddle(contents: bytes | ModelFile, what: str, path: Path | None, edits: ModelEdits | None) -> Model:
    """Read a program, `.pdmodel` or PIR `.json`, and its parameters.

    These are in the `.pdiparams` file of the same name beside it, in a file `__params__`, in a file for each parameter,
    or the one file of `edits`. ModelFormatError if a file is damaged.
    """
    data = contents.read(0, contents.size).tobytes() if isinstance(contents, ModelFile) else contents
    is_pir = data.lstrip()[:1] == b"{"
    try:
        program = read_pir(data, what) if is_pir else read_program(data, what)
        arrays, files = _params(program, path, edits)
        graph = make_graph("program", tuple(program.inputs), tuple(program.outputs), program.nodes, Constants(arrays))
    except ModelError:
        raise
    except _DAMAGE as e:
        raise ModelFormatError(f"{what} is damaged or was cut off: {type(e).__name__}: {e}") from e
    graph = edit_graph(graph, None if edits is None else replace(edits, files={}, folder="", params=""))
    check_model(graph, {})
    meta = ModelMetadata(producer_name="paddle", graph_name="program")
    opsets = {"": defs.onnx_opset_version(), PADDLE: 1}
    return Model(graph, {}, opsets, IR_VERSION, meta, path, files)


def _params(
    program: Program, path: Path | None, edits: ModelEdits | None
) -> tuple[dict[str, Array | LazyArray], dict[str, ModelFile]]:
    """Return the parameters, and the files that hold them."""
    if not program.params:
        return {}, {}
    given = dict(edits.files) if edits else {}
    if len(given) == 1:
        ((name, data),) = given.items()
        return read_combined(bytes(data), program.params, f"the given file '{name}'"), {}
    found = Path(edits.params) if edits and edits.params else None
    if path is None:
        raise ModelFormatError(
            f"the program has {len(program.params)} parameters and was given as bytes: load it by its path, or give "
            "the contents of its .pdiparams file with it (docs/paddle.md)"
        )
    found = found or _find_params(path)
    if found is None:
        return read_separate(path.parent, program.params)
    try:
        file = ModelFile(found)
    except OSError as e:
        raise ModelFileError(f"the parameters '{found}' cannot be read: {e.strerror or e}") from e
    return read_combined(file, program.params, f"'{found}'"), {os.path.relpath(found, path.parent): file}


def _find_params(path: Path) -> Path | None:
    """Find the file with all parameters; None if each has a file of its own. ModelFileError if there are none."""
    found = params_of(path)
    if found is None and path.name != "__model__" and not _has_loose_files(path):
        raise ModelFileError(
            f"there is no file '{path.with_suffix('.pdiparams')}' with the parameters of '{path.name}': put it beside "
            "the program, under the program's name"
        )
    return found


def _has_loose_files(path: Path) -> bool:
    """Whether files named as parameters, which end in a letter and a number, lie beside the program."""
    return any(re.fullmatch(r"\.[wb]_\d+", p.suffix) for p in path.parent.iterdir())
