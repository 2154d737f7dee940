"""A function of a library that the driver may unload: held once it is known to lie where it was told to."""

from __future__ import annotations

import ctypes
import itertools
import sys

import pytest

from opalite.pocl.megakernel import call_from_host
from opalite.pocl.megakernel.call_from_host import HostFunction, pin_host_function

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="dladdr of Linux")


def address_of(function: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), function), ctypes.c_void_p).value or 0


FREE, MALLOC = address_of("free"), address_of("malloc")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[HostFunction]:
    """Every function whose library was held."""
    found: list[HostFunction] = []
    find = call_from_host.find_host_function

    def remember(address: int) -> HostFunction | None:
        code = find(address)
        if code is not None:
            found.append(code)
        return code

    monkeypatch.setattr(call_from_host, "find_host_function", remember)
    return found


def test_a_function_is_held_where_it_stays() -> None:
    code = pin_host_function(lambda: FREE)
    assert code is not None
    assert code.release.alive
    assert ctypes.cast(code.function, ctypes.c_void_p).value == FREE
    code.release()


def test_what_lies_where_a_function_lay_is_not_taken_for_it(held: list[HostFunction]) -> None:
    """It moved before its library was held: another one was."""
    addresses = iter([FREE, MALLOC, MALLOC])
    code = pin_host_function(lambda: next(addresses))
    assert code is held[1]
    assert [h.release.alive for h in held] == [False, True]
    assert ctypes.cast(code.function, ctypes.c_void_p).value == MALLOC
    code.release()


def test_a_function_that_keeps_moving_is_left_alone(held: list[HostFunction]) -> None:
    addresses = itertools.cycle([FREE, MALLOC])
    assert pin_host_function(lambda: next(addresses)) is None
    assert held
    assert not any(h.release.alive for h in held)


def test_a_function_whose_library_is_gone_is_asked_for_again(held: list[HostFunction]) -> None:
    addresses = iter([0, FREE, FREE])
    code = pin_host_function(lambda: next(addresses))
    assert code is held[0]
    code.release()
