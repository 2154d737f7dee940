"""A kernel whose program a driver does not compile is left out, and another one takes its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.device.device_family import FRAGILE_COMPILER

# The compiler is made to fail where a source has one of the words given.
SCRIPT = """
import sys
import numpy as np
from onnx import helper as h, numpy_helper as nh
import opalite
from opalite.cl.programs.compile_source import SourceCompiler

compile_source, words = SourceCompiler.compile, sys.argv[1].split(",")

def failing(self, text, options, name, key, death=""):
    bad = any(w in text for w in words)
    return compile_source(self, "#error broken\\n" * bad + text, options, name, key, death)

SourceCompiler.compile = failing
rng = np.random.default_rng(0)
w, x = (rng.standard_normal(s).astype("f4") for s in ((64, 48), (33, 64)))
nodes = [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Relu", ["a"], ["y"])]
if len(sys.argv) > 2:
    nodes = [h.make_node("Relu", ["x"], ["y"])]
infos = [h.make_tensor_value_info("x", 1, ["n", 64])], [h.make_tensor_value_info("y", 1, None)]
graph = h.make_graph(nodes, "g", *infos, [nh.from_array(w, "w")])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9).SerializeToString()
for _ in range(2):
    session = opalite.InferenceSession(model, precision="fp32")
    try:
        want = np.maximum(x @ w if len(nodes) > 1 else x, 0)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)
    except opalite.BuildError as e:
        print("BuildError", e)
        break
    print(session.explain())
"""


def run(words: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "OPALITE_CACHE_DIR": str(folder),
        "OPALITE_BUILD_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-c", SCRIPT, words, *more]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(autouse=True)
def compiles_here(rt: Runtime) -> None:
    if FRAGILE_COMPILER in rt.info.quirks:
        pytest.skip("worker processes compile, where the script makes nothing fail")


def test_another_kernel_takes_its_place(tmp_path: Path) -> None:
    plain = run("no such word", tmp_path / "a")
    assert plain.returncode == 0, plain.stderr[-2000:]
    kernel = next(k for k in ("MatmulPanelsCpu", "MatmulLocalTile", "MatmulStream") if k in plain.stdout)
    word = {"MatmulPanelsCpu": "matmul_panel", "MatmulLocalTile": "matmul_tile", "MatmulStream": "matmul_stream"}[
        kernel
    ]
    found = run(f"void {word}(", tmp_path / "b")
    assert found.returncode == 0, found.stderr[-2000:]
    assert f"{kernel} left out: the program does not compile on" in found.stdout
    assert found.stderr.count("left out") == 1, "told once, and the second session does not try it again"
    lines = [line for line in found.stdout.splitlines() if "MatMul" in line]
    assert lines
    assert not any(kernel in line for line in lines if "left out" not in line)


@pytest.mark.parametrize("more", [(), ("Relu",)])
def test_a_driver_that_compiles_nothing_is_an_error(tmp_path: Path, more: tuple[str, ...]) -> None:
    """However few kernels there are to try; the host does not take over all of a model."""
    found = run("kernel void", tmp_path, *more)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.startswith("BuildError"), found.stdout
    assert "#error" in found.stdout or "broken" in found.stdout
