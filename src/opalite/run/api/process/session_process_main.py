"""The process of a SessionProcess: `python -m opalite.run.api.process.session_process_main`.

The process reads pickles from stdin: first the session's arguments, the cores and the descriptors of shared memory,
then requests. It answers each on stdout by (is_error, answer), and ends when stdin is closed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any

from ....errors import DeviceError
from ..session.inference_session import InferenceSession
from .shared_memory import SharedArrays


def main() -> None:
    """Load the model and answer requests until stdin is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that output of drivers does not mix with answers

    def answer(is_error: bool, value: Any) -> None:
        answers.write(pickle.dumps((is_error, value), pickle.HIGHEST_PROTOCOL))
        answers.flush()

    first = pickle.load(sys.stdin.buffer)
    if first["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, first["cores"])
    inputs, outputs = (SharedArrays(descriptor) for descriptor in first["descriptors"])
    try:
        session = InferenceSession(**first["arguments"])
    except Exception as e:
        answer(True, _picklable(e))
        return
    session.may_recover = first["may_recover"]
    answer(False, None)
    while True:
        try:
            command, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            value = None
            if command == "settle":
                session.settle()
            else:
                output_names, input_names, packed = arguments
                feeds = {n: v for n, (v, _) in zip(input_names, inputs.get(packed), strict=True)}
                value = outputs.put(session.run(output_names, feeds))
        except Exception as e:
            answer(True, _picklable(e))
        else:
            answer(False, value)
    session.close()


def _picklable(error: Exception) -> Exception:
    """`error`, or a DeviceError of the same text if the parent process could not unpickle it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickling calls code of the error's class
        return DeviceError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):  # the parent has ended
        sys.exit(1)
