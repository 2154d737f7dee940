"""What a process takes at its peak for a model whose weights are one matrix: about one copy of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onnx
from onnx import TensorProto, helper, numpy_helper
from opalite.cl.runtime import Runtime

K, N = 6144, 4096  # 100 MB
PROGRAM = """
import json, sys
import numpy as np
import opalite
import opalite.plan.planner, opalite.run.model.segment_runs
def memory():
    with open("/proc/self/status") as f:
        found = dict(line.split(":", 1) for line in f)
    return [int(found[key].split()[0]) << 10 for key in ("VmRSS", "VmHWM")]
session = opalite.InferenceSession(sys.argv[1], device="cpu", precision="fp32")
x = np.linspace(-1, 1, 4 * int(sys.argv[2]), dtype=np.float32).reshape(4, -1)
before, _ = memory()
(y,) = session.run(None, {"x": x})
session.settle()
(y,) = session.run(None, {"x": x})
_, peak = memory()
print(json.dumps([peak - before, y[:, ::100].tolist()]))
"""


@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "external"])
def test_one_large_matrix_is_in_memory_once(rt: Runtime, kind: str, tmp_path: Path) -> None:
    if rt.info.family != "pocl" or sys.platform != "linux":
        pytest.skip("PoCL on Linux, which uses host memory in place")
    matrix = np.random.default_rng(0).standard_normal((K, N), np.float32)
    held = np.ascontiguousarray(matrix.T) if kind == "Gemm" else matrix
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    if kind != "Gemm":
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    x, y = (helper.make_tensor_value_info(v, TensorProto.FLOAT, (4, d)) for v, d in (("x", K), ("y", N)))
    graph = helper.make_graph([node], "one", [x], [y], [numpy_helper.from_array(held, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "one.onnx"
    onnx.save(model, path, save_as_external_data=kind == "external", location="weights.bin")
    environment = {**os.environ, "OPALITE_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    want = np.linspace(-1, 1, 4 * K, dtype=np.float32).reshape(4, -1) @ matrix[:, ::100]
    for caches in ("empty", "filled"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path), str(K)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        taken, found = json.loads(done.stdout)
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-2)
        assert taken < 1.5 * matrix.nbytes, caches  # twice would be 2; libraries take some MB more or less
