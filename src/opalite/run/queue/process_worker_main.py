"""The process of a ProcessWorker: `python -m opalite.run.queue.process_worker_main`.

It reads pickles from stdin: first the model, options, cores and boxes, then requests, and answers each with
(whether that is an error, the answer) on stdout. It ends with its input.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any

from ..api.session.fallback_process_main import portable
from ..api.session.inference_session import InferenceSession
from .shared_memory_arrays import Box


def main() -> None:
    """Answer until the end of input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # drivers that print cannot break the protocol

    def tell(is_error: bool, answer: Any) -> None:
        answers.write(pickle.dumps((is_error, answer), pickle.HIGHEST_PROTOCOL))
        answers.flush()

    first = pickle.load(sys.stdin.buffer)
    if first["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, first["cores"])
    inputs, outputs = (Box(descriptor) for descriptor in first["boxes"])
    try:
        session = InferenceSession(first["model"], **first["options"])
    except Exception as e:  # raised where the process was started
        tell(True, portable(e))
        return
    tell(False, None)
    while True:
        try:
            command, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            answer = None
            if command == "settle":
                session.settle()
            else:
                names, inputs_names, packed = arguments
                feeds = {n: v for n, (v, _) in zip(inputs_names, inputs.get(packed), strict=True)}
                answer = outputs.put(session.run(names, feeds))
        except Exception as e:  # raised where the request came from
            tell(True, portable(e))
        else:
            tell(False, answer)
    session.close()


if __name__ == "__main__":
    main()
