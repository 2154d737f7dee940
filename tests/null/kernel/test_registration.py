"""Operators and kernels that a module registers: what is found of them, and what is refused in a sentence."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

from opalite.errors import InputError, ModelError, OpaliteError, PluginError, ShapeError, UnsupportedOpError
from opalite.ir import DType, TensorType, load_plugins
from opalite.ir.load_plugins import load_plugin
from opalite.ir.plugins import foreign_providers, foreign_state
from opalite.kernels import kernels_for
from opalite.ops import all_ops
from opalite.run.report.device_plan import plan_for_device

from ...helpers.registered import registers, write_roll

__all__ = ["registers"]
pytestmark = pytest.mark.usefixtures("registers")
OPERATOR = '@register_operator(domain="com.example")\nclass Roll'
DEVICE = "pocl_avx2"
HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]> g (float[2, 5] x) => (float[2, 5] y) '


def model(node: str = "com.example.Roll<axis = 1, shift = 2>(a)") -> bytes:
    made: bytes = onnx.parser.parse_model(f"{HEAD}{{ a = Neg(x) y = {node} }}").SerializeToString()
    return made


def kernels_in(node: str = "com.example.Roll<axis = 1, shift = 2>(a)") -> list[str]:
    return [r.kernel for r in plan_for_device(model(node), DEVICE).nodes if r.kernel]


def reference_of_roll() -> Any:
    return all_ops()["Roll"](axis=1).reference([np.zeros((2, 5))])  # type: ignore[call-arg]


def test_a_module_registers_an_operator_and_a_kernel(tmp_path: Path) -> None:
    before = foreign_state()
    load_plugin(str(write_roll(tmp_path)))
    assert kernels_in() == ["ElementwiseFlat", "RollFlat"]
    assert foreign_state() != before
    assert foreign_providers() == {"Roll": "roll_of_test.py", "RollFlat": "roll_of_test.py"}


def test_an_edit_of_any_file_is_another_state(tmp_path: Path) -> None:
    path = write_roll(tmp_path, cl=("\nkernel", '\n#include "part.cl"\nkernel'))
    (tmp_path / "part.cl").write_text("// one\n")
    load_plugin(str(path))
    states = {foreign_state()}
    for file in (path, path.with_suffix(".cl"), tmp_path / "part.cl"):
        file.write_text(file.read_text() + "\n")
        states.add(foreign_state())
    assert len(states) == 4


def test_the_setting_names_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_KERNELS", str(write_roll(tmp_path)))
    assert kernels_in() == ["ElementwiseFlat", "RollFlat"]
    monkeypatch.setenv("OPALITE_KERNELS", str(tmp_path / "gone.py"))
    with pytest.raises(InputError, match=r"there is no file '.*gone.py'"):
        kernels_in()


def test_preferred_kernels_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_plugin(str(write_roll(tmp_path)))
    slower = write_roll(tmp_path, "slower", py=("class RollFlat(Kernel):", "class Slower(Kernel):")).read_text()
    path = tmp_path / "slower.py"
    kept = slower[: slower.index("@register_operator")] + slower[slower.index("@register_kernel") :]
    path.write_text(kept.replace("CASES =", "NONE = lambda: ").replace("p.node.as_(Roll)", "p.node.op"))
    load_plugin(str(path))
    assert [k.name for k in kernels_for("Roll")] == ["RollFlat", "Slower"]
    assert kernels_in()[1] == "RollFlat"
    monkeypatch.setenv("OPALITE_PREFER_KERNELS", "Slower")
    (report,) = [r for r in plan_for_device(model(), DEVICE).nodes if r.op == "Roll"]
    assert report.kernel == "Slower"
    assert report.refusals == {"RollFlat": "OPALITE_PREFER_KERNELS names another kernel"}


def test_a_class_that_is_declared_again_takes_the_others_place(tmp_path: Path) -> None:
    path = write_roll(tmp_path)
    load_plugin(str(path))
    load_plugins._files.clear()
    path.write_text(path.read_text().replace("shift: int = 1", "shift: int = 4"))
    load_plugin(str(path))
    assert all_ops()["Roll"](axis=0).shift == 4  # type: ignore[call-arg, attr-defined]
    assert [k.name for k in kernels_for("Roll")] == ["RollFlat"]


@pytest.mark.parametrize(
    "py, text",
    [
        (('op = "Roll"', 'op = "Rol"'), "kernel RollFlat computes 'Rol', not a canonical operator; is it Roll"),
        (
            ("class RollFlat", "class SoftmaxRows"),
            "kernel SoftmaxRows: Opalite has a kernel of this name; choose another",
        ),
        (("class Roll(", "class Softmax("), "operator Softmax: Opalite has an operator of this name.*name='Softmax'"),
        (('op = "Roll"', 'op, source = "Roll", "other.cl"'), "kernel RollFlat: there is no other.cl in "),
        (("def launch", "def lunch"), r"kernel RollFlat has no method launch\(self, p, params\)"),
        (("(1, 2)}", "3}"), "kernel RollFlat: space maps names to tuples of values.*got {'WIDE': 3}"),
        (("def reference", "def refer"), r"operator Roll has no method reference\(self, arrays\)"),
        (("axis: int", "axis: dict"), "operator Roll: attribute axis is of type <class 'dict'>; known are bool, int"),
        (
            ("shift: int", "cost: int = 0\n    shift: int"),
            "cost is a name of Operator's own; declare the attribute as cost_",
        ),
        (('domain="com.example"', ""), "operator Roll needs domain="),
        (
            ('domain="com.example"', 'domain="com.microsoft", name="FusedConv"'),
            "Opalite imports FusedConv of com.microsoft",
        ),
        (
            ("import numpy", "import nothing_there\nimport numpy"),
            r"No module named 'nothing_there' \(.*roll_of_test.py:2\)",
        ),
        (("axis: int", "axis int"), r"SyntaxError: invalid syntax \(.*roll_of_test.py:11\)"),
    ],
)
def test_a_wrong_declaration_gets_a_sentence(tmp_path: Path, py: tuple[str, str], text: str) -> None:
    with pytest.raises(PluginError, match=text) as found:
        load_plugin(str(write_roll(tmp_path, py=py)))
    assert "roll_of_test.py" in str(found.value)


def test_a_name_of_another_module_is_taken(tmp_path: Path) -> None:
    other = OPERATOR.replace(")", ', name="Roll")').replace("class Roll", "class Other")
    load_plugin(str(write_roll(tmp_path)))
    with pytest.raises(PluginError, match=r"operator Roll: roll_of_test.py has an operator of this name"):
        load_plugin(str(write_roll(tmp_path, "second")))
    with pytest.raises(PluginError, match=r"roll_of_test.py imports com.example.Roll already, as Roll"):
        load_plugin(str(write_roll(tmp_path, "third", py=(OPERATOR, other))))


@pytest.mark.parametrize(
    "py, where, text",
    [
        (
            ("return [np.roll", "return [np.rol"),
            "reference",
            r"Roll.reference failed: AttributeError.*roll_of_test.py:18\)",
        ),
        (("need(0", "ins[3]; need(0"), "plan", r"Roll.check_shape failed: IndexError: .*roll_of_test.py:15\)"),
        (
            ("        x, y, op", "        p.nodes\n        x, y, op"),
            "plan",
            r"RollFlat.launch failed: AttributeError.*:29\)",
        ),
        (
            ("return [Launch", "return 3\n        [Launch"),
            "plan",
            r"RollFlat.launch must return a list of Launch, got 3",
        ),
        (('"n": n, ', ""), "plan", "nothing is given for n"),
        (("(y.type.count,), defines", "y.type.count, defines"), "plan", r"grid, a tuple of one to three sizes, got 10"),
        (("(y.type.count,), defines", "(-1,), defines"), "plan", r"grid, a tuple of one to three sizes, got \(-1,\)"),
        (("(y.type.count,), defines", "(8,), (8, 8), defines"), "plan", r"a group of 1 sizes, .*got \(8, 8\)"),
        (
            ("def launch", "def bindings(self, p): return []\n    def launch"),
            "plan",
            r"one Binding .*1 inputs .*got \[\]",
        ),
        (("def launch", "def seconds(self, p, cost): pass\n    def launch"), "plan", "a number of seconds, got None"),
        (("need(0", 'return "no"; need(0'), "plan", "check_shape must return nothing.*got 'no'"),
        (("[np.roll(", "[np.negative(arrays[0], arrays[0]) + np.roll("), "reference", "read-only .*roll_of_test.py:18"),
        (("[np.roll(", "[arrays[0], np.roll("), "reference", "infer_shape gives 1 outputs and reference 2"),
        (
            ("np.roll(arrays[0], self.shift, self.axis)", "arrays[0].ravel()"),
            "reference",
            r"\(2, 5\) by infer_shape and of \(10,\)",
        ),
    ],
)
def test_a_fault_in_a_method_names_file_and_line(tmp_path: Path, py: tuple[str, str], where: str, text: str) -> None:
    load_plugin(str(write_roll(tmp_path, py=py)))
    make = kernels_in if where == "plan" else reference_of_roll
    with pytest.raises(OpaliteError, match=text) as found:
        make()
    assert where != "plan" or "Roll node" in str(found.value)


def test_a_reference_that_returns_its_input_gives_a_copy(tmp_path: Path) -> None:
    load_plugin(str(write_roll(tmp_path, py=("np.roll(arrays[0], self.shift, self.axis)", "arrays[0]"))))
    (y,) = all_ops()["Roll"](axis=0).reference([x := np.zeros(3)])  # type: ignore[call-arg]
    y += 1
    assert not x.any()


@pytest.mark.parametrize(
    "node, text",
    [
        ("com.example.Roll<shift = 2>(a)", "lacks the attribute 'axis', for which Roll has no default"),
        ("com.example.Roll<axis = 1, by = 2>(a)", "has the attribute 'by'; operator Roll declares axis, shift"),
        ("com.example.Roll<axis = 1.5>(a)", "has axis = 1.5; int is declared"),
        ("com.example.Roll<axis = [1]>(a)", r"has axis = \(1,\); int is declared"),
        ("com.example.Roll<axis = 2>(a)", "axis 2 is not an axis of f32"),
    ],
)
def test_a_models_node_that_does_not_fit(tmp_path: Path, node: str, text: str) -> None:
    load_plugin(str(write_roll(tmp_path)))
    with pytest.raises(ShapeError, match=text):
        kernels_in(node)


def test_versions_of_a_domain(tmp_path: Path) -> None:
    load_plugin(str(write_roll(tmp_path, py=('domain="com.example"', 'domain="com.example", since=2'))))
    with pytest.raises(UnsupportedOpError, match="registered from version 2 of its domain on, and the model imports"):
        kernels_in()


def test_reserved_words_are_attributes_with_an_underscore(tmp_path: Path) -> None:
    path = write_roll(
        tmp_path, py=("shift: int = 1", "shift: int = 1\n    cost_: int = 5\n    ratios: tuple[float, ...] = ()")
    )
    load_plugin(str(path))
    plan = plan_for_device(model("com.example.Roll<axis = 1, cost = 3, ratios = [1.5, 2.0]>(a)"), DEVICE)
    assert [r.kernel for r in plan.nodes if r.op == "Roll"] == ["RollFlat"]


def test_types_of_results_follow_the_shape_rule(tmp_path: Path) -> None:
    rule = "def infer_shape(self, ins):\n        return TensorType(DType.INT8, ins[0].shape)\n\n    def reference"
    path = write_roll(tmp_path, py=("def reference", rule))
    path.write_text(path.read_text().replace("import STORAGE,", "import STORAGE, DType, TensorType,"))
    load_plugin(str(path))
    op = all_ops()["Roll"](axis=0)  # type: ignore[call-arg]
    assert op.infer_shape([TensorType(DType.FLOAT32, (2,))]) == [TensorType(DType.INT8, (2,))]
    (y,) = op.reference([np.arange(3.0)])
    assert y.dtype == np.int8


def test_epilogues_are_not_given_to_kernels_that_do_not_apply_them(tmp_path: Path) -> None:
    text = """
from opalite.kernel import Kernel, register_kernel

@register_kernel
class Products(Kernel):
    op = "MatMul"

    def seconds(self, p, cost):
        return 1.0

    def launch(self, p, params):
        raise AssertionError("it would be asked")
"""
    (tmp_path / "products.py").write_text(text)
    (tmp_path / "products.cl").write_text("")
    load_plugin(str(tmp_path / "products.py"))
    one = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 5] x, float[5, 3] w) => (float[2, 3] y) '
    made = onnx.parser.parse_model(one + "{ a = MatMul(x, w) y = Relu(a) }").SerializeToString()
    (report,) = [r for r in plan_for_device(made, DEVICE).nodes if r.op == "MatMul"]
    assert report.kernel != "Products"
    assert report.refusals["Products"].startswith("it does not apply the node's epilogue")


# Installed packages


def install(folder: Path, module: str, version: str = "1.2") -> None:
    about = folder / f"example_{module}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: example-{module}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[opalite.kernels]\n{module} = {module}\n")


def test_entry_points_are_loaded_when_a_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_roll(tmp_path)
    install(tmp_path, "roll_of_test")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(load_plugins, "_searched", False)
    assert kernels_in() == ["ElementwiseFlat", "RollFlat"]
    assert foreign_providers()["Roll"] == "example-roll_of_test 1.2"


def test_a_broken_package_is_told_and_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_roll(tmp_path, py=("import numpy", "1 / 0\nimport numpy"))
    install(tmp_path, "roll_of_test")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(load_plugins, "_searched", False)
    with pytest.warns(
        UserWarning, match=r"kernels of example-roll_of_test 1.2, .*division by zero .*roll_of_test.py:2"
    ):
        assert kernels_in("Neg(a)") == ["ElementwiseFlat"]
    with warnings.catch_warnings(action="error"), pytest.raises(ModelError) as found:
        kernels_in()
    assert re.search("The kernels of example-roll_of_test 1.2 could not be imported: ZeroDivision", str(found.value))


def test_no_package_costs_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(**_: Any) -> Any:
        raise AssertionError("entry points are parsed")

    monkeypatch.setattr(load_plugins, "_searched", False)
    monkeypatch.setattr("importlib.metadata.entry_points", parse)
    load_plugins.load_plugins()
