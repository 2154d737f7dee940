"""Rates of the units that a device has besides those of float32."""

from __future__ import annotations

import pytest

from opalite.cl.runtime import Runtime
from opalite.lens import measure_units as units
from opalite.lens.peaks import peaks_of


def test_units_that_the_device_has_are_measured(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_ROUNDS", 4)
    found = units.measure_units(rt)
    assert found.keys() <= peaks_of(rt.info, None, {}).keys()
    assert all(rate > 0 for rate in found.values())
    if rt.info.dot_product or rt.info.byte_dots == "fours":
        assert "dot" in found
