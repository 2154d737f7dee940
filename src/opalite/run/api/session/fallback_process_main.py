"""The process of a StandIn: loads a model and runs it for another process.

    python -m opalite.run.api.session.fallback_process_main

Standard input has the session's arguments and then inputs, standard output the outputs or what was raised: bytes of
pickle, each behind their number. The process ends when standard input does.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from typing import IO, Any

_SIZE = struct.Struct("<Q")


def write(stream: IO[bytes], raw: bytes) -> None:
    """A message. OSError where nobody reads."""
    stream.write(_SIZE.pack(len(raw)))
    stream.write(raw)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """A message; None where the other side has ended."""
    header = stream.read(_SIZE.size)
    if len(header) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(header)
    raw = stream.read(size)
    return raw if len(raw) == size else None


def main() -> int:
    """Exit status 0."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what drivers print must not get between answers
    arguments = read(questions)
    session: Any = None
    while arguments is not None and (feeds := read(questions)) is not None:
        try:
            if session is None:
                from .inference_session import InferenceSession

                session = InferenceSession(**pickle.loads(arguments))
                session.may_recover = False  # whoever asks starts another process
            answer = pickle.dumps((True, session.run(None, pickle.loads(feeds))), protocol=5)
        except Exception as e:
            answer = pickle.dumps((False, portable(e)))
        write(answers, answer)
    return 0


def portable(error: Exception) -> Exception:
    """The error if another process can read it, else a DeviceError of the same words."""
    from ....errors import DeviceError

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a class of somebody else's raises when it is made anew
        return DeviceError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, KeyboardInterrupt):  # whoever asked is gone
        sys.exit(1)
