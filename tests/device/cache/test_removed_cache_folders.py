"""Folders that go away while a process uses them: sessions go on, and new models are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opalite.cl.runtime import Runtime

_PROGRAM = """
import os, shutil, sys
from pathlib import Path
import numpy as np
import opalite
from onnx import TensorProto, helper
device, goes, cache, temporary = *sys.argv[1:3], *map(Path, sys.argv[3:5])

def open_session(name, *attributes):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 37]) for n in "xy")
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"])], "one", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return opalite.InferenceSession(model.SerializeToString(), device=device)

x = np.linspace(-2, 2, 111, dtype=np.float32).reshape(3, 37)
first = open_session("Softmax")
expected = first.run(None, {"x": x})[0]
if goes == "all":
    shutil.rmtree(cache)
elif goes == "file":
    for path in [*cache.glob("pocl/*/"), cache / "programs"]:
        shutil.rmtree(path, ignore_errors=True)
        path.touch()
elif goes == "parts":
    for path in [p for p in cache.rglob("*") if p.is_file() and p.suffix != ".so"]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
else:
    shutil.rmtree(temporary)
for _ in range(3):
    np.testing.assert_array_equal(first.run(None, {"x": x})[0], expected)
assert first.settle()
np.testing.assert_allclose(first.run(None, {"x": x})[0], expected, 1e-5)
for name, function in (("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)), ("Tanh", np.tanh)):
    other = open_session(name)
    for _ in range(2):
        np.testing.assert_allclose(other.run(None, {"x": x})[0], function(x), 1e-5, 1e-5)
        assert other.settle()
np.testing.assert_allclose(open_session("Softmax").run(None, {"x": x})[0], expected, 1e-5)
print("well")
"""


@pytest.mark.parametrize("tiers", ["0", "1"])
@pytest.mark.parametrize("goes", ["all", "file", "parts", "temporary"])
def test_sessions_go_on(rt: Runtime, tmp_path: Path, goes: str, tiers: str) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPALITE_CACHE", "POCL_CACHE", "TMPDIR"))}
    environment |= {"OPALITE_TIERS": tiers, "TMPDIR": str(temporary)}
    environment |= {"OPALITE_CACHE": "0"} if goes == "temporary" else {"OPALITE_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _PROGRAM, rt.info.id, goes, str(cache), str(temporary)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "well", done.stderr
    assert done.stderr.count("it is made anew") <= 1
