"""Dataclasses whose methods are generated on use act as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest

from opalite.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Point3(Point):
    z: int = 3


@dataclass
class Counter:
    """Changes."""

    name: str
    count: int = dataclasses.field(default=0, repr=False)
    seen: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        self.seen = self.count + 1


@dataclass(eq=False)
class Same:
    x: int

    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True, slots=True)
class Slotted:
    x: int


def test_values() -> None:
    assert Point(1) == Point(1, 2, ["not compared"])
    assert Point(1) != Point(2)
    assert hash(Point(1)) == hash(Point(1))
    assert repr(Point3(1)) == "Point3(x=1, y=2, tags=[], z=3)"
    assert Point3(1, 2) != Point(1, 2)
    assert Point(1).tags is not Point(1).tags
    assert dataclasses.replace(Point3(1), z=9) == Point3(1, z=9)
    assert [f.name for f in dataclasses.fields(Point3)] == ["x", "y", "tags", "z"]
    assert Slotted(1) == Slotted(1)
    match Point(4):
        case Point(x, y):
            assert (x, y) == (4, 2)


def test_what_may_change() -> None:
    counter = Counter("runs", 4)
    assert (counter.seen, repr(counter)) == (5, "Counter(name='runs', seen=5)")
    counter.count = 7
    assert counter.count == 7
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)
    assert (repr(Same(1)), Same(1) == Same(1)) == ("own", False)
    assert len({Same(1), Same(1)}) == 2


def test_frozen_ones_refuse_changes() -> None:
    for point in (Point(1), Point3(1)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            point.x = 2  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            del point.x  # type: ignore[misc]


def test_wrong_arguments() -> None:
    for wrong in ({}, {"x": 1, "w": 2}):
        with pytest.raises(TypeError):
            Point(**wrong)


def test_copies() -> None:
    for made in (Point3(1), Counter("a", 3)):
        assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


def test_a_record_made_without_its_constructor_compares() -> None:
    @dataclass(frozen=True)
    class Bare:
        x: int

    record = object.__new__(Bare)
    record.__dict__["x"] = 1
    other = object.__new__(Bare)
    other.__dict__["x"] = 1
    assert record == other


def test_threads_may_be_first_together() -> None:
    for _ in range(20):

        @dataclass(frozen=True)
        class Shared:
            x: int
            y: int = 1

        made: list[Any] = []
        begin = threading.Barrier(4)

        def make(kind: Any = Shared, made: list[Any] = made, begin: threading.Barrier = begin) -> None:
            begin.wait()
            made.append(kind(5))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Shared(5)] * 4
