"""The key of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from opalite.errors import InputError
from opalite.serve.wire.listening_front import Key, find_key
from opalite.serve.wire.serve_errors import Unauthorized

SECRET = "a-long-secret"


TOKEN = SECRET.encode()
RIGHT = [{b"x-api-key": TOKEN}, {b"authorization": b"Bearer " + TOKEN}, {b"authorization": b"bearer  " + TOKEN}]
WRONG = [
    {}, {b"x-api-key": b""}, {b"x-api-key": b"a-long-secreT"}, {b"x-api-key": b"\xff"},
    {b"authorization": TOKEN}, {b"authorization": b"Basic " + TOKEN},
]  # fmt: skip


@pytest.mark.parametrize("headers", RIGHT)
def test_the_key_opens(headers: dict[bytes, bytes]) -> None:
    Key(SECRET).check(headers)


@pytest.mark.parametrize("headers", WRONG)
def test_anything_else_does_not(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(Unauthorized, match="X-API-Key"):
        Key(SECRET).check(headers)


def test_it_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_key(None) is None
    monkeypatch.setenv("OPALITE_SERVE_KEY", "of-the-environment")
    key = find_key(None)
    assert key is not None
    key.check({b"x-api-key": b"of-the-environment"})
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\nignored\n")
    key = find_key(str(file))
    assert key is not None
    key.check({b"x-api-key": SECRET.encode()})


@pytest.mark.parametrize("text", ["", "short", "has a space in it", "umlaut-äöü", "tab\tin-the-key"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="characters"):
        find_key(str(file))
    with pytest.raises(InputError, match="cannot be read"):
        find_key(str(tmp_path / "nothing"))
