"""Key: the API key required of clients."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path

from ... import knobs
from ...errors import InputError
from .serve_errors import Unauthorized

_LEAST = 8


class Key:
    """Compares a request's key with the expected one in constant time."""

    def __init__(self, text: str) -> None:
        self._expected = text.encode()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Unauthorized unless the headers have `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
        given = headers.get(b"x-api-key")
        if given is None:
            scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
            given = rest.strip() if scheme.lower() == b"bearer" else b""
        if not hmac.compare_digest(given, self._expected):
            raise Unauthorized(
                "the key is missing or wrong; send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
            )


def find_key(file: str | None) -> Key | None:
    """The key in the first line of `file`, else of OPALITE_SERVE_KEY, else None. InputError for an invalid key."""
    text = knobs.get("OPALITE_SERVE_KEY")
    source = "OPALITE_SERVE_KEY"
    if file is not None:
        source = file
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as e:
            raise InputError(f"the file of the API key cannot be read: {e}") from e
        text = lines[0].strip() if lines else ""
    if text is None:
        return None
    if len(text) < _LEAST or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(f"{source}: a key has {_LEAST} or more printable ASCII characters, without spaces")
    return Key(text)
