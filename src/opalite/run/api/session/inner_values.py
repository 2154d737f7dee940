"""InnerValues: sessions whose outputs are values inside the model, each by a program of its own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import InputError
from ....ir.precision import PrecisionPolicy
from ....plan.bundle.bundle import is_bundle
from ..options.session_options import options_for_outputs

if TYPE_CHECKING:
    from .inference_session import InferenceSession

_KEPT = 4


class InnerValues:
    """The sessions that compute inner values, by names and precision; the least recently used is closed.

    A value that a fused kernel keeps in registers has no memory in the program of the whole model, so that each choice
    of values is planned apart. Weights and cached programs are shared with the session.
    """

    def __init__(self, arguments: Mapping[str, Any], make: Callable[..., InferenceSession]) -> None:
        """arguments: of the session, to which `make` is applied with other options."""
        self._arguments, self._make = arguments, make
        self._lock = threading.Lock()
        self._sessions: OrderedDict[Hashable, InferenceSession] = OrderedDict()

    def session(self, names: Sequence[str], policy: PrecisionPolicy | None) -> InferenceSession:
        """The session with the outputs `names`. policy: the precision in place of the arguments'.

        Raises InputError for a name that is no value, and for a bundle.
        """
        model = self._arguments["path_or_bytes"]
        if not isinstance(model, bytes) and is_bundle(model):
            raise InputError(
                f"no output is named {next(iter(names))!r} alone in {model}: a bundle computes the outputs that it was "
                "compiled for; run the model's own file for other values"
            )
        chosen = tuple(dict.fromkeys(names))
        key = chosen, None if policy is None else policy.to_json()
        with self._lock:
            found = self._sessions.get(key)
            if found is None:
                options = options_for_outputs(self._arguments["sess_options"], chosen)
                changed = {"sess_options": options} | ({} if policy is None else {"precision": policy})
                found = self._sessions[key] = self._make(**{**self._arguments, **changed})
                if len(self._sessions) > _KEPT:
                    self._sessions.popitem(last=False)[1].close()
            self._sessions.move_to_end(key)
        return found

    def close(self) -> None:
        """Close the sessions."""
        with self._lock:
            for session in self._sessions.values():
                session.close()
            self._sessions.clear()
