"""docs/dropin.md has every public name of onnxruntime's, and says of each what is true."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import pytest

import opalite

from .idiom import COMPARED_WITH

onnxruntime = pytest.importorskip("onnxruntime")
PAGE = (Path(__file__).parents[2] / "docs" / "dropin.md").read_text()
KINDS = {"same", "accepted", "differs", "refused"}


def rows(section: str) -> list[tuple[list[str], str]]:
    """(names in the first cell, kind) of each row of a section's table."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`([A-Za-z_]\w*)", first), kind.strip()) for first, kind, *_ in cells]


COMPARED = ".".join(map(str, COMPARED_WITH))
INSTALLED = onnxruntime.__version__
SAME_VERSION = INSTALLED.startswith(f"{COMPARED}.")
OTHER_VERSION = f"compared with onnxruntime {COMPARED}, installed {INSTALLED}"

NAMES = {name: kind for names, kind in rows("Names") for name in names}
CALLS = {name: kind for names, kind in rows("Sessions") for name in names}


def public(module: Any) -> set[str]:
    """Names that a user means: no modules but `capi`, nothing that begins with an underscore."""
    return {
        n
        for n in dir(module)
        if not n.startswith("_")
        and n != "import_capi_exception"
        and (n == "capi" or not isinstance(getattr(module, n), types.ModuleType))
    }


@pytest.mark.parametrize("name", sorted(public(onnxruntime)))
def test_every_name_of_onnxruntime_is_there(name: str) -> None:
    if name not in NAMES and not SAME_VERSION:
        pytest.skip(OTHER_VERSION)
    assert NAMES[name] in KINDS
    assert hasattr(opalite, name)
    assert name in opalite.__all__


def test_the_table_has_no_names_that_are_gone() -> None:
    assert {n for n in NAMES if not hasattr(opalite, n)} == set()
    if not SAME_VERSION:
        pytest.skip(OTHER_VERSION)
    assert NAMES.keys() - public(onnxruntime) - {"version", "package_name", "cuda_version"} == set()


def test_the_version_that_was_compared() -> None:
    """It is said in the page, and it is the one that the tests install."""
    assert f"compared with onnxruntime {COMPARED};" in PAGE
    assert f"\nonnxruntime=={COMPARED}." in (Path(__file__).parents[1] / "constraints.txt").read_text()


def test_calls_of_sessions() -> None:
    assert {n for n in CALLS if n != "InferenceSession" and not hasattr(opalite.InferenceSession, n)} == set()
    check_no_more({n for n in dir(onnxruntime.InferenceSession) if not n.startswith("_")} - CALLS.keys())


@pytest.mark.parametrize("name", sorted(n for n, kind in NAMES.items() if kind == "refused"))
def test_refused_in_words(name: str) -> None:
    found = getattr(opalite, name)
    with pytest.raises(opalite.OpaliteError) as told:
        found("a", "b") if name.startswith("register") else found("a")
    assert len(str(told.value).split()) > 5


@pytest.mark.parametrize(
    "kind", ["SessionOptions", "RunOptions", "OrtValue", "IOBinding", "NodeArg", "ModelMetadata", "OrtDevice"]
)
def test_members_of_classes(kind: str) -> None:
    theirs = {n for n in dir(getattr(onnxruntime, kind)) if not n.startswith("_")}
    ours = getattr(opalite, kind)
    fields = set(getattr(ours, "__dataclass_fields__", ()))
    check_no_more({n for n in theirs if not hasattr(ours, n) and n not in fields})


def test_members_of_the_compiled_module() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as theirs

    from opalite.capi import _pybind_state, onnxruntime_pybind11_state

    exceptions = {n for n in dir(theirs) if isinstance(c := getattr(theirs, n), type) and issubclass(c, Exception)}
    assert onnxruntime_pybind11_state.Fail is _pybind_state.Fail
    check_no_more(exceptions - set(dir(onnxruntime_pybind11_state)))


def check_no_more(names: set[str]) -> None:
    """No names of onnxruntime's that Opalite lacks; those of another version are no fault."""
    if names and not SAME_VERSION:
        pytest.skip(f"{OTHER_VERSION}, which has {sorted(names)}")
    assert names == set()
