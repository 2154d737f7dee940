"""What the portability suite puts in place of host writes computes what it replaces."""

from __future__ import annotations

import subprocess
import sys

from opalite.cl.runtime import Runtime

# In a process of its own, which keeps every buffer.
RUN = """
import sys
import numpy as np
import opalite
from opalite.cl.runtime import find_runtime
from tests.helpers.small_models import classifier, noise
from tests.portability.shadow import follow_host_writes

model, feeds = classifier().SerializeToString(), {"x": noise(2, 3, 8, 8)}
(want,) = opalite.InferenceSession(model, device=sys.argv[1], precision="fp32").run(None, feeds)
follow_host_writes()
(got,) = opalite.InferenceSession(model, device=sys.argv[1], precision="fp32").run(None, feeds)
assert np.array_equal(got, want)

rt = find_runtime(sys.argv[1])
a, b = rt.allocate(300), rt.allocate(300)
given, found = np.arange(300, dtype=np.uint8) % 251, np.empty(300, np.uint8)
rt.write(a, given)
rt.fill(b, 7, 300)
rt.write(b, given[:70], 3)
rt.copy(a, b, 100, 50, 150)
rt.read(b, found)
want = np.full(300, 7, np.uint8)
want[3:73] = given[:70]
want[150:250] = given[50:150]
assert np.array_equal(found, want), found
"""


def test_host_writes_by_kernels_write_the_same(rt: Runtime) -> None:
    done = subprocess.run([sys.executable, "-c", RUN, rt.info.id], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
