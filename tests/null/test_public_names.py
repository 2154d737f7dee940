"""The public names: all there, none imported before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import opalite


@pytest.mark.parametrize("name", opalite.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(opalite, name) is not None
    assert name in dir(opalite)


def test_names_that_come_later_are_public() -> None:
    assert set(opalite._LATER) <= set(opalite.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'opalite' has no attribute 'nothing'"):
        _ = opalite.nothing


def test_importing_the_package_imports_no_engine() -> None:
    code = "import sys, opalite; print(*(m for m in ('numpy', 'pyopencl', 'onnx') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
