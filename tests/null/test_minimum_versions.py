"""What `make minima` installs follows from pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.minima import find_pins

from ..models.shared import find_cases


def _write(folder: Path, *dependencies: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(f"[project]\ndependencies = {list(dependencies)!r}\n")
    return path


def test_the_lowest_versions_are_pinned(tmp_path: Path) -> None:
    path = _write(tmp_path, "numpy>=1.26", "ml_dtypes >= 0.5", "pocl>=3.0; sys_platform == 'linux'")
    assert find_pins(path) == ["numpy==1.26", "ml_dtypes==0.5", "pocl==3.0; sys_platform == 'linux'"]


@pytest.mark.parametrize("text", ["numpy", "numpy>1", "numpy>=1.26,<3"])
def test_a_dependency_without_one_lowest_version_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="NAME>=VERSION"):
        find_pins(_write(tmp_path, text))


def test_every_dependency_of_this_project_has_one() -> None:
    assert any(pin.startswith("numpy==") for pin in find_pins())


@pytest.mark.skipif(not find_cases(), reason="no models")
def test_the_models_exist() -> None:
    from tests.minima import MODELS

    assert {case.arrays.stem for case in find_cases()} >= set(MODELS)
