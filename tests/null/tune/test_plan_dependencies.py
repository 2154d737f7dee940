"""What of the tuning database a plan depends on: its verdict and entries, and nothing of other models'."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from opalite.tune.database_keys import device_signature
from opalite.tune.plan_dependencies import answers
from opalite.tune.tuning_database import Entry, TuningDatabase, Verdict
from opalite.tune.tuning_levels import Level

from ...helpers.tuning import CPU

OWN = device_signature(CPU)
NODE = "Conv f | 1x3x8x8"


@pytest.fixture
def database() -> TuningDatabase:
    return TuningDatabase(None)


def put(database: TuningDatabase, node: str = NODE, **other: Any) -> None:
    fields = {"device": OWN, "kernel": "K:1", "binding": "a->b", "params": {"TW": 7}, "seconds": 1e-3, **other}
    database.put(Entry(**fields, node=node, group=None, default_seconds=1e-3, level=Level.FAST))


def said(database: TuningDatabase, *nodes: str) -> str:
    return answers(database, CPU, "graph", nodes or (NODE,))


def test_nothing_is_known_at_first(database: TuningDatabase) -> None:
    assert said(database) == ""


def test_what_planning_would_see_counts(database: TuningDatabase) -> None:
    found = [said(database)]
    put(database, "Conv f | 1x3x64x64")  # a neighbour
    found.append(said(database))
    put(database, "Conv f | 1x3x9x9", params={"TW": 2})  # a nearer one
    found.append(said(database))
    other = device_signature(dataclasses.replace(CPU, compute_units=8))
    put(database, device=other, params={"TW": 5})
    found.append(said(database))
    put(database)
    found.append(said(database))
    put(database, seconds=5e-4)
    found.append(said(database))
    put(database, params={"TW": 3})
    found.append(said(database))
    put(database, kernel="L:1")
    found.append(said(database))
    database.put_verdict(OWN, "graph", Verdict(True, 2.0, 1.0, Level.FAST))
    found.append(said(database))
    database.put_verdict(OWN, "graph", Verdict(False, 2.0, 1.0, Level.FAST))
    found.append(said(database))
    assert len(set(found)) == len(found)
    put(database, seconds=1e-4)
    assert said(database) == found[-1]  # tuning is set aside


def test_what_planning_would_not_see_does_not(database: TuningDatabase) -> None:
    put(database)
    before = said(database)
    put(database, "Conv f | 1x3x9x9")  # there is an exact one
    put(database, "Conv g | 1x3x8x8")  # of another form
    put(database, device=device_signature(dataclasses.replace(CPU, driver="another")))
    put(database, "Conv f | 1x3x4096x4096", kernel="M:1")  # too far
    database.put_verdict(OWN, "another graph", Verdict(False, 2.0, 1.0, Level.FAST))
    assert said(database) == before
