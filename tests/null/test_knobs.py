"""Names in the environment that look like settings and are none: one warning at import, which names the closest one."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from opalite import knobs


def imported(**environment: str) -> str:
    """What a process that imports the package writes on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", "import opalite, opalite.knobs"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_misspelt_settings_are_told_once_with_the_closest() -> None:
    told = imported(OPALITE_PRECISON="fp16", OPALITE_XYZZY="1", OPALITE_DEBUG="0", OPALITE_TEST_KILLS="1")
    assert told.count("Warning") == 1
    assert "the environment has OPALITE_PRECISON (is it OPALITE_PRECISION?), OPALITE_XYZZY, which" in told
    assert "`opalite knobs` lists" in told
    assert "OPALITE_DEBUG" not in told
    assert "OPALITE_TEST_KILLS" not in told


def test_settings_alone_are_no_reason_to_warn() -> None:
    assert imported(**{knob.name: "" for knob in knobs.all_knobs()}) == ""


def test_processes_that_this_one_starts_do_not_warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PRECISON", "fp16")
    monkeypatch.setenv("OPALITE_DEBUG", "2")
    made = knobs.environment(OPALITE_CACHE="0", PATH="/nowhere")
    assert "OPALITE_PRECISON" not in made
    assert (made["OPALITE_DEBUG"], made["OPALITE_CACHE"], made["PATH"]) == ("2", "0", "/nowhere")
    with pytest.warns(UserWarning, match="OPALITE_PRECISON"):
        knobs.warn_of_unknown_names()
    monkeypatch.delenv("OPALITE_PRECISON")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        knobs.warn_of_unknown_names()
