"""Device descriptions: names as people write them, and files that somebody edited."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from opalite.errors import InputError
from opalite.ir.device import device_family
from opalite.ir.device.device_descriptions import (
    FOLDER,
    description_advice,
    description_names,
    is_description,
    read_description,
)

RAW = json.loads((FOLDER / "adreno_640.json").read_text())


@pytest.mark.parametrize("name", ["adreno_640", "Adreno 640", "ADRENO-640", " adreno_640 "])
def test_names_are_read_as_people_write_them(name: str) -> None:
    assert is_description(name)
    assert read_description(name).title == "Adreno 640"


def test_parts_of_names_are_none_but_advice_has_them() -> None:
    assert not any(map(is_description, ("adreno", "adreno_64", "cpu", "0:0", "", None)))
    assert "adreno_640, adreno_660" in description_advice("Adreno 6")
    assert "mali_g76" in description_advice("mali_g67")
    assert description_advice("Adreno 640").startswith("Adreno 640 is a description: compare, ")
    assert description_advice("nonsense") == description_advice("") == ""


def test_every_description_that_comes_along_is_read() -> None:
    assert {read_description(n).family for n in description_names()} <= set(device_family.FAMILIES)
    named = set(re.findall(r'Family\(\s*"(\w+)"', inspect.getsource(device_family)))
    assert named <= set(device_family.FAMILIES)


@pytest.mark.parametrize(
    "changed, text",
    [
        ({"compute_units": -4}, "compute_units is -4, where 1 to "),
        ({"compute_units": 0}, "compute_units is 0, where 1 to "),
        ({"compute_units": 10**30}, "compute_units is 1000000"),
        ({"compute_units": "2"}, "compute_units is '2', where one like 1 "),
        ({"compute_units": None}, "compute_units is None"),
        ({"compute_units": True}, "compute_units is True"),
        ({"max_work_item_sizes": [64, 64, 0]}, "max_work_item_sizes is 0, where 1 to "),
        ({"local_mem": -1}, "local_mem is -1, where 0 to "),
        ({"base_align": 3}, "base_align is 3, where a power of two is expected"),
        ({"kind": "toaster"}, "kind is 'toaster', where one of cpu, gpu"),
        ({"family": "Adreno"}, "family is 'Adreno', where one of pocl, adreno"),
        ({"name": ""}, "no object with a name"),
        ({"name": {"a": 1}}, "no object with a name"),
    ],
)
def test_a_field_that_no_device_has(tmp_path: Path, changed: dict[str, Any], text: str) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(RAW | changed))
    with pytest.raises(InputError, match=re.escape(text)) as found:
        read_description(str(path))
    assert "`opalite devices --export FILE.json` writes one" in str(found.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", json.dumps(RAW)[:300], "[" * 100_000, '{"devices": []}'])
def test_files_of_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "device.json"
    path.write_text(text)
    with pytest.raises(InputError, match="does not describe a device"):
        read_description(str(path))


def test_notes_pass_and_misspelt_names_do_not(tmp_path: Path) -> None:
    path = tmp_path / "Device.JSON"
    path.write_text("\ufeff" + json.dumps(RAW | {"note": "bought in May", "fp8": True}), encoding="utf-8")
    assert read_description(str(path)) == read_description("adreno_640")
    path.write_text(json.dumps({"name": "x", "compute_unit": 3}))
    with pytest.raises(InputError, match="'compute_unit' is no property of a device; is it compute_units"):
        read_description(str(path))
