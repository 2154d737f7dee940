"""An operator and a kernel of another package: in sessions, in verification, in bundles, and in their own tests."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx.parser
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import BundleError
from opalite.ir.load_plugins import load_plugin
from opalite.kernel.testing import assert_file, check_file, check_module, time_module
from opalite.kernel.testing.check_kernels import Check
from opalite.kernels.kernel import withdraw_kernel
from opalite.ops import all_ops
from opalite.ops.operator import withdraw_op
from opalite.run.report.verify_nodes import verify_model

from ...helpers.registered import registers, write_roll

__all__ = ["registers"]
pytestmark = pytest.mark.usefixtures("registers")
TEXT = (
    '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]> g (float[N, 5] x) => (float[N, 5] y) '
    "{ a = Neg(x) y = com.example.Roll<axis = 1, shift = 2>(a) }"
)
X = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "roll.onnx"
    path.write_bytes(onnx.parser.parse_model(TEXT).SerializeToString())
    return path


def checks(path: Path, rt: Runtime) -> list[Check]:
    return list(check_module(load_plugin(str(path)), rt))


def test_a_session_runs_it(model: Path, tmp_path: Path) -> None:
    load_plugin(str(write_roll(tmp_path)))
    for precision, tolerance in (("fp32", 0), ("fp16", 2e-3)):
        with opalite.InferenceSession(model, precision=precision) as session:
            np.testing.assert_allclose(session.run(None, {"x": X})[0], np.roll(-X, 2, 1), atol=tolerance)
            assert [n.kernel for n in session.explain().nodes if n.op == "Roll"] == ["RollFlat"]
    assert verify_model(model, {"x": X}).first_failure is None


def test_without_a_kernel_the_reference_runs(model: Path, tmp_path: Path) -> None:
    path = write_roll(tmp_path)
    text = path.read_text()
    path.write_text(text[: text.index("@register_kernel")])
    load_plugin(str(path))
    with opalite.InferenceSession(model) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.roll(-X, 2, 1))
        assert [n.op for n in session.explain().host_nodes] == ["Roll"]


def test_a_bundle_holds_its_source(model: Path, tmp_path: Path, rt: Runtime) -> None:
    module = load_plugin(str(write_roll(tmp_path)))
    bundle = tmp_path / "roll.opal"
    opalite.compile(model, bundle, shapes={"x": (7, 5)}, device=rt.info.id)

    def run(trust: bool) -> np.ndarray:
        with opalite.InferenceSession(bundle, trust=trust) as session:
            found: np.ndarray = session.run(None, {"x": X})[0]
            return found

    for trust in (False, True):
        np.testing.assert_array_equal(run(trust), np.roll(-X, 2, 1))
    forget(module)
    np.testing.assert_array_equal(run(True), np.roll(-X, 2, 1))
    with pytest.raises(BundleError, match=r"uses Roll, RollFlat, which roll_of_test.py registers: install.*trust=True"):
        run(False)


def forget(module: ModuleType) -> None:
    """As in a process that does not import the module."""
    withdraw_kernel(module.RollFlat)
    withdraw_op("Roll")
    assert "Roll" not in all_ops()


def test_its_own_test_passes(tmp_path: Path, rt: Runtime) -> None:
    path = write_roll(tmp_path)
    assert_file(path, rt.info.id)
    found = checks(path, rt)
    assert {"as given", "as given, WIDE=2", "prime sizes", "sizes of one", "halves for floats"} <= {
        c.variation for c in found if not c.refused
    }
    assert not [c for c in found if c.problem]
    (race,) = time_module(load_plugin(str(path)), rt)
    assert [(r.kernel, r.own, r.problem) for r in race.rivals] == [("RollFlat", True, "")]
    assert race.best_rival is None


@pytest.mark.parametrize(
    "cl, variation, text",
    [
        (
            ("if (at >= count) return;", "if (at >= count - 1) return;"),
            "as given",
            "1 of them were never written",
        ),
        (("STORE(y, at,", "STORE(y, at + 1,"), "as given", "something was written past the end of output y0"),
        (("STORE(y, at,", "STORE(y, at + 5000,"), "as given", "something was written past the end of output y0"),
        (("STORE(y, at,", "STORE(y, at - 1,"), "as given", "something was written before the start of output y0"),
        (("STORE(y, at,", "STORE((global REAL *)x, at,"), "as given", "input x0 has changed"),
        (("LOAD(x,", "LOAD(y, at) + LOAD(x,"), "as given", "computed of what nothing has written"),
        (("LOAD(x,", "0 * LOAD(x, at + 1) + LOAD(x,"), "as given", "lies outside of tensors is NaN in tests"),
        (("LOAD(x,", "2 * LOAD(x,"), "prime sizes", r"elements of output y0 are wrong; at \[0, 0, 0\] got"),
        (
            ("LOAD(x,", "nothing + LOAD(x,"),
            "as given",
            r"(?s)did not compile.*(test.cl:6|identifier 'nothing')",
        ),
        (("% n - i)", "% 7 - i)"), "prime sizes", "are wrong"),
    ],
)
def test_its_own_test_finds_faults(tmp_path: Path, rt: Runtime, cl: tuple[str, str], variation: str, text: str) -> None:
    problems = {c.variation: c.problem for c in checks(write_roll(tmp_path, cl=cl), rt)}
    assert re.search(text, problems[variation]), problems[variation]


def test_a_read_that_changes_nothing_is_found_by_a_closed_wall(tmp_path: Path, rt: Runtime) -> None:
    """It ends the process of the checks, which is told."""
    if not rt.shares_memory:
        pytest.skip("walls are closed where the device works on the host's memory")
    unused = "if (LOAD(x, at + count) == 5) STORE(y, at, (ACC)5); STORE(y, at,"
    path = write_roll(tmp_path, cl=("STORE(y, at,", unused))
    assert not [c.problem for c in checks(path, rt) if c.problem], "open walls do not show it"
    last = check_file(str(path), rt.info.id).checks[-1]
    assert last.variation == "as given"
    assert "ended its process (SIG" in last.problem
    with pytest.raises(AssertionError, match=r"as given of Roll.*it reads outside of its tensors"):
        assert_file(path, rt.info.id)


def test_scratch_memory_holds_nothing_before_a_run(tmp_path: Path, rt: Runtime) -> None:
    path = write_roll(tmp_path, py=('{"x": x,', '{"sums": Scratch("sums", 64), "x": x,'))
    path.write_text(path.read_text().replace("Operator, need", "Operator, Scratch, need"))
    source = path.with_suffix(".cl")
    taken = source.read_text().replace("roll(", "roll(global REAL *sums, ")
    source.write_text(taken.replace("LOAD(x,", "LOAD(sums, 0) + LOAD(x,"))
    problems = {c.variation: c.problem for c in checks(path, rt)}
    assert "computed of what nothing has written" in problems["as given"]
    assert not problems["shape rule"]
