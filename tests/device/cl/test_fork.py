"""Processes forked while a session runs: they end at once, and what they inherited says why it is of no use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

# A thread runs the model, its workers staying between runs where they can, while children are forked.
PARENT = """
import gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
import opalite
from opalite.errors import DeviceError
from tests.helpers.small_models import classifier

session = opalite.InferenceSession(classifier().SerializeToString(), precision="fp32")
feeds = {"x": np.ones((1, 3, 8, 8), np.float32)}
value = opalite.OrtValue.ortvalue_from_numpy(feeds["x"], "opencl")
want = session.run(None, feeds)[0]
for _ in range(25):
    session.run(None, feeds)
session.settle()
session.run(None, feeds)
loop = session._dispatcher.run_record.executables[0].current.selector.megakernel.host_thread_loop
if loop is not None:
    loop._uses_workers = True  # whichever way is faster here
binding = session.io_binding()
binding.bind_cpu_input("x", feeds["x"])
binding.bind_output(session.get_outputs()[0].name)
again = True

def work():
    while again:
        session.run(None, feeds)

def refused(call):
    try:
        call()
    except DeviceError as e:
        assert "was forked after OpenCL was started" in str(e), e
        return True
    return False

def child(how):
    global session, value, loop
    if how == "exit":
        sys.exit(7)
    if how == "collected":
        session = value = loop = None
        opalite.run.api.session.session_core.find_runtime.__globals__["_runtimes"].clear()
        gc.collect()
        sys.exit(7)
    if how == "closed":
        with session:
            sys.exit(7)
    if how == "in a thread":
        other = threading.Thread(target=lambda: (time.sleep(0.05), gc.collect()))
        other.start()
        other.join()
        sys.exit(7)
    calls = {
        "run": lambda: session.run(None, feeds),
        "run with binding": lambda: session.run_with_iobinding(binding),
        "settle": session.settle,
        "replay": session.replay,
        "explain": session.explain,
        "profile": lambda: session.profile(feeds),
        "tune": lambda: session.tune(feeds),
        "value": value.numpy,
        "new value": lambda: opalite.OrtValue.ortvalue_from_numpy(feeds["x"], "opencl"),
        "new session": lambda: opalite.InferenceSession(classifier().SerializeToString()),
        "devices": opalite.devices,
    }
    sys.exit(7 if refused(calls[how]) else 1)

def in_a_worker(queue):
    try:
        session.run(None, feeds)
    except DeviceError as e:
        queue.put(str(e))

thread = threading.Thread(target=work)
thread.start()
try:
    for how in sys.argv[1].split(","):
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)  # ends it where it hangs
            child(how)
        status = os.waitpid(pid, 0)[1]
        print(how, "signal", status & 127, "code", status >> 8, flush=True)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=in_a_worker, args=(queue,))
    worker.start()
    print("worker", queue.get(timeout=30)[:36], flush=True)
    worker.join(30)
    print("worker", worker.exitcode, flush=True)
finally:
    again = False
    thread.join()
print("parent", np.array_equal(session.run(None, feeds)[0], want))
"""

WAYS = ["exit", "collected", "closed", "in a thread", "run", "run with binding", "settle", "replay", "explain"]
WAYS += ["profile", "tune", "value", "new value", "new session", "devices"]


def test_children_end_and_what_they_inherited_says_why_it_is_of_no_use() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", PARENT, ",".join(WAYS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    expected = [f"{how} signal 0 code 7" for how in WAYS]
    expected += ["worker this process was forked after OpenCL", "worker 0", "parent True"]
    assert done.stdout.splitlines() == expected, done.stderr
