"""`import onnxruntime` gives Opalite: one set of modules, the installed package's for what Opalite lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_onnxruntime = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")


def run(folder: Path, code: str, *how: str, **env: str) -> str:
    """What a script prints; its last error line if it fails."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, *how, str(folder / "script.py")]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def ported(folder: Path, code: str, *options: str) -> str:
    return run(folder, code, "-m", "opalite.onnxruntime", *options)


def test_modules_and_classes_are_opalites(tmp_path: Path) -> None:
    code = """
import sys
import onnxruntime as ort
from onnxruntime import InferenceSession
from onnxruntime.capi import _pybind_state
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as same
from onnxruntime.capi.onnxruntime_pybind11_state import NoSuchFile
import onnxruntime.backend
import opalite
assert InferenceSession is opalite.InferenceSession is same is ort.InferenceSession
assert _pybind_state is opalite.capi._pybind_state and ort.capi is opalite.capi
assert NoSuchFile is opalite.capi.onnxruntime_pybind11_state.NoSuchFile
assert onnxruntime.backend is opalite.backend
assert opalite.capi.__spec__.name == "opalite.capi"
found = [m.partition(".")[2] for m in sys.modules if m.startswith("onnxruntime.")]
twice = [m for m in found if f"opalite.{m}" not in sys.modules]
assert not twice, twice
try:
    InferenceSession("no such file.onnx", providers=["CPUExecutionProvider"])
except NoSuchFile:
    print("caught")
"""
    assert ported(tmp_path, code) == "caught"


def test_names_that_opalite_lacks_are_attribute_errors(tmp_path: Path) -> None:
    assert "no attribute 'nothing' in Opalite" in ported(tmp_path, "import onnxruntime; onnxruntime.nothing")
    assert "cannot import name 'nothing'" in ported(tmp_path, "from onnxruntime import nothing")


@needs_onnxruntime
def test_other_submodules_are_those_of_the_package(tmp_path: Path) -> None:
    code = """
import onnxruntime as ort
from onnxruntime.quantization import calibrate
from onnxruntime.capi.onnxruntime_pybind11_state import quantize_matmul_4bits
from importlib.metadata import version
assert calibrate.onnxruntime is ort and ort.__version__ == ort.get_version_string() == version("onnxruntime")
print(ort.InferenceSession.__module__.partition(".")[0], quantize_matmul_4bits.__name__)
"""
    assert ported(tmp_path, code) == "opalite quantize_matmul_4bits"


def test_without_the_package_the_version_is_the_one_that_is_followed(tmp_path: Path) -> None:
    code = """
import sys
sys.path = [p for p in sys.path if "site-packages" not in p]
import importlib.metadata
from opalite.onnxruntime import EMULATED_VERSION, install
importlib.metadata.version = lambda name: (_ for _ in ()).throw(importlib.metadata.PackageNotFoundError(name))
install()
import onnxruntime
assert onnxruntime.__version__ == EMULATED_VERSION
try:
    import onnxruntime.quantization
except ModuleNotFoundError as e:
    print(e)
"""
    assert run(tmp_path, code) == "No module named 'onnxruntime.quantization'"


def test_processes_that_a_script_starts_get_opalite_too(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('their own sitecustomize')")
    code = """
import subprocess, sys
child = "import onnxruntime, opalite; print(onnxruntime.InferenceSession is opalite.InferenceSession)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
"""
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    found = run(tmp_path, code, "-m", "opalite.onnxruntime", PYTHONPATH=path)
    assert found.split("\n")[-2:] == ["their own sitecustomize", "True"]


def test_a_module_and_arguments(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("import sys, onnxruntime; print(onnxruntime.OrtValue.__module__, sys.argv[1:])")
    command = [sys.executable, "-m", "opalite.onnxruntime", "-m", "tool", "--flag", "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "opalite.run.api.values.ort_value ['--flag', 'x']"


def test_a_device_is_told_to_all_sessions(tmp_path: Path) -> None:
    code = "import onnxruntime as o; o.InferenceSession(b'', providers=['CPUExecutionProvider'])"
    assert "`opalite devices` lists them" in ported(tmp_path, code, "--device", "no such device")


def test_options_without_effect_are_no_warnings(tmp_path: Path) -> None:
    code = """
import logging
import onnxruntime as ort
logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(message)s", stream=__import__("sys").stdout)
from opalite.run.api.options.run_options import check_run_options
options = ort.RunOptions()
options.add_run_config_entry("gpu_graph_id", "1")
logging.getLogger("opalite").setLevel(logging.DEBUG)
check_run_options(options)
"""
    assert ported(tmp_path, code).startswith("DEBUG the run config entry")


def test_an_import_before_is_an_error(tmp_path: Path) -> None:
    code = """
import sys, types
sys.modules["onnxruntime"] = types.ModuleType("onnxruntime")
import opalite
opalite.install_as_onnxruntime()
"""
    assert "before anything imports onnxruntime" in run(tmp_path, code)


@pytest.mark.parametrize(
    ("arguments", "sentence"), [([], "name a script"), (["none.py"], "there is no file 'none.py'")]
)
def test_commands_that_name_nothing(arguments: list[str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opalite.onnxruntime", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr
