"""Compiling a model again gives the same bytes: in the same process, after other models, and in another process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from opalite.expr.expression import Expr
from opalite.ir import DeviceInfo, Graph
from opalite.ir.dtype import DType
from opalite.ir.graph import Node, Value, new_value
from opalite.ir.patch import Patch, apply_patches
from opalite.ir.tensor_type import TensorType
from opalite.ops.elementwise import Elementwise
from opalite.plan.bundle.bundle import Bundle, Variant
from opalite.plan.bundle.write_bundle import save_bundle
from opalite.run.model.imported_model import ImportedModel
from opalite.run.model.model_inputs_outputs import describe_model, example_shapes
from tests.helpers.device_plans import FIXTURES, plan

from ...helpers.small_models import classifier, dense, tagger, transformer_block

ROOT = Path(__file__).parents[3]
MODELS = {f.__name__: f for f in (classifier, transformer_block, tagger, dense)}
DEVICES = ("pocl_avx512", "adreno_640", "nvidia_h200")


def digest_of(model: str) -> str:
    """Of the .opal file of a model for several devices."""
    source = ImportedModel(MODELS[model]().SerializeToString())
    devices = [DeviceInfo.from_json((FIXTURES / f"{name}.json").read_text()) for name in DEVICES]
    variants = []
    for device in devices:
        types = example_shapes(source.inputs)
        variants.append(Variant(device, plan(source, types, device)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.opal"
        save_bundle(path, Bundle(variants, describe_model(source)))
        return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    return {model: digest_of(model) for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_compiled_again_in_this_process(model: str, digests: dict[str, str]) -> None:
    assert digest_of(model) == digests[model]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_compiled_in_another_process(seed: str, digests: dict[str, str]) -> None:
    """Sets of texts have another order in each process, and models come in another order."""
    code = (
        "from tests.null.plan.test_reproducible_plans import MODELS, digest_of\n"
        "for model in reversed(MODELS): print(model, digest_of(model))"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert dict(line.split() for line in done.stdout.splitlines()) == digests


def test_new_names_avoid_those_of_the_model() -> None:
    """A model may call its own values as passes call new ones; those, and names that end in a tilde, stay."""
    type_ = TensorType(DType.FLOAT32, (4,))
    graph = Graph("g")
    x = Value("x~", type_)
    op = Elementwise(Expr((), (DType.FLOAT32,)))
    own = Node(op, [x], [Value("y~0", type_)])
    graph.inputs, graph.nodes, graph.outputs = [x], [own], [own.y]
    for number in (1, 2):
        last = graph.nodes[-1]
        made = last.with_()
        apply_patches(graph, [Patch.replacing(last, made)], "test")
        assert (graph.inputs[0].name, graph.outputs[0].name) == ("x~", f"y~{number}")
    assert graph.copy().adopt(new_value("z", type_)).name == "z~3"
