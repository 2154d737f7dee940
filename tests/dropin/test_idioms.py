"""Every idiom with both modules."""

from __future__ import annotations

import builtins
from collections import Counter
from pathlib import Path

import pytest

import opalite
from opalite import status

from . import (
    idioms_binding,
    idioms_caches,
    idioms_dlpack,
    idioms_errors,
    idioms_module,
    idioms_options,
    idioms_session,
    idioms_values,
)
from .idiom import IDIOMS, Idiom, assert_same, outcome

onnxruntime = pytest.importorskip("onnxruntime")
onnxruntime.set_default_logger_severity(4)

FILES = (
    idioms_binding,
    idioms_caches,
    idioms_dlpack,
    idioms_errors,
    idioms_module,
    idioms_options,
    idioms_session,
    idioms_values,
)


def folders(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "onnxruntime", tmp_path / "opalite"
    for folder in made:
        folder.mkdir()
    return made


@pytest.mark.parametrize("one", [i for i in IDIOMS if i.kind == "same"], ids=lambda i: i.name)
def test_the_same(one: Idiom, tmp_path: Path) -> None:
    theirs, ours = folders(tmp_path)
    want = outcome(onnxruntime, one.run, theirs)
    got = outcome(opalite, one.run, ours)
    if want.error is None:
        if got.error is not None:
            raise got.error
        assert_same(got.value, want.value)
        return
    assert got.error is not None, f"onnxruntime raises {want.error!r}, Opalite gives {got.value!r}"
    name = type(want.error).__name__
    expected = getattr(status, name, None) or getattr(builtins, name)
    assert isinstance(got.error, expected), f"{got.error!r} is no {name}"
    assert isinstance(got.error, opalite.OpaliteError), "an error of Opalite's own says what to do"


@pytest.mark.parametrize("one", [i for i in IDIOMS if i.kind == "refused"], ids=lambda i: i.name)
def test_refused_in_a_sentence(one: Idiom, tmp_path: Path) -> None:
    got = outcome(opalite, one.run, folders(tmp_path)[1])
    assert isinstance(got.error, opalite.UnsupportedApiError)
    assert len(str(got.error).split()) > 6


@pytest.mark.parametrize("one", [i for i in IDIOMS if i.kind == "differs"], ids=lambda i: i.name)
def test_differs_as_the_documents_say(one: Idiom, tmp_path: Path) -> None:
    """Both work, or Opalite says what is wrong; where it came to be the same, the list is out of date."""
    theirs, ours = folders(tmp_path)
    want, got = outcome(onnxruntime, one.run, theirs), outcome(opalite, one.run, ours)
    if got.error is not None:
        assert isinstance(got.error, opalite.OpaliteError)
        name = "" if want.error is None else type(want.error).__name__
        assert not name or not isinstance(got.error, getattr(status, name, None) or getattr(builtins, name))
        return
    if want.error is None:
        with pytest.raises((AssertionError, AttributeError)):
            assert_same(got.value, want.value)


def test_idioms_have_distinct_names() -> None:
    assert [n for n, count in Counter(i.name for i in IDIOMS).items() if count > 1] == []
    assert len(IDIOMS) > 100
    for file in FILES:
        assert any(i.run.__module__ == file.__name__ for i in IDIOMS)
