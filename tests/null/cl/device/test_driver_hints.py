"""Which hints a device is given, by its extensions, and what is said where it takes none."""

from __future__ import annotations

import dataclasses

import pytest

from opalite.cl.device.driver_hints import HintProperties, Hints, hint_properties, make_hints, supported_hints
from opalite.errors import InputError
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_info import DeviceInfo


def load(name: str, *more: str) -> DeviceInfo:
    found = read_description(name)
    return dataclasses.replace(found, extensions=(*found.extensions, *more))


@pytest.mark.parametrize(
    "word, clocks, rank", [("high", 0x40C3, 0x40CA), ("normal", 0x40C4, 0x40CB), ("low", 0x40C5, 0x40CC)]
)
def test_an_adreno_takes_both_with_its_context(word: str, clocks: int, rank: int) -> None:
    found = hint_properties(Hints(word, word), load("adreno_640"))
    assert found.context == ((0x40C2, clocks), (0x40C9, rank))
    assert found.queue == ()
    assert [s.split(" by ")[1] for s in found.sentences] == ["cl_qcom_perf_hint", "cl_qcom_priority_hint"]


@pytest.mark.parametrize("word, bit", [("high", 1), ("normal", 2), ("low", 4)])
def test_khronos_hints_go_with_queues(word: str, bit: int) -> None:
    mali = load("mali_g78", "cl_khr_priority_hints", "cl_khr_throttle_hints")
    found = hint_properties(Hints(word, word), mali)
    assert found.context == ()
    assert found.queue == ((0x1097, bit), (0x1096, bit))


def test_the_vendor_s_own_goes_before_khronos_s() -> None:
    both = load("adreno_506", "cl_khr_throttle_hints", "cl_khr_priority_hints")
    found = hint_properties(Hints("low", "high"), both)
    assert (found.context, found.queue) == (((0x40C2, 0x40C5),), ((0x1096, 1),))


def test_what_a_device_does_not_list_is_left_out_and_told() -> None:
    older = load("adreno_506")
    found = hint_properties(Hints("high", "low"), older)
    assert found.context == ((0x40C2, 0x40C3),)
    assert found.sentences[1] == (
        f"priority 'low' has no effect: {older.title} lists neither cl_qcom_priority_hint nor cl_khr_priority_hints"
    )
    assert list(supported_hints(older)) == ["performance"]
    cpu = hint_properties(Hints("high", "low"), load("pocl_avx512"))
    assert not cpu
    assert cpu == HintProperties()  # such a session shares what others use
    assert all("has no effect" in s for s in cpu.sentences)


def test_nothing_asked_is_nothing_given_and_nothing_said() -> None:
    found = hint_properties(make_hints(), load("adreno_640"))
    assert not found
    assert found.sentences == ()


def test_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PERFORMANCE", "LOW")
    monkeypatch.setenv("OPALITE_PRIORITY", "high")
    assert make_hints() == Hints("low", "high")
    assert make_hints("high") == Hints("high", "high")
    monkeypatch.setenv("OPALITE_PRIORITY", "highest")
    with pytest.raises(InputError, match="OPALITE_PRIORITY='highest' is not valid: expected high, normal or low"):
        make_hints()


@pytest.mark.parametrize("what", ["performance", "priority"])
def test_other_words_are_refused(what: str) -> None:
    with pytest.raises(InputError, match=f"{what} 'turbo' is unknown; choose high, normal, low"):
        Hints(**{what: "turbo"})
