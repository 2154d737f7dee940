"""What was compiled for several sizes: which of it serves another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from opalite.plan.program import Program
from opalite.run.model.executable_cache import Compiled, ExecutableCache, Sizes


class Key:
    """A segment."""


class AnySizes:
    """A template that serves all sizes but one."""

    names, guards = ("height",), ()

    def __init__(self, *sizes: int, refused: int = 0) -> None:
        self.sizes, self._refused = sizes, refused

    def at(self, sizes: Sizes) -> Program | None:
        return None if sizes == (self._refused,) else Program(f"{self.sizes} at {sizes}")


def made_for(*sizes: int, refused: int = 0) -> Compiled:
    executable: Any = SimpleNamespace(program=Program("first"))
    template: Any = AnySizes(*sizes, refused=refused)
    return Compiled(executable, sizes=sizes, template=template)


def test_the_one_that_was_made_for_the_nearest_sizes_serves() -> None:
    cache, key = ExecutableCache(), Key()
    tuned: Any = SimpleNamespace(program=Program("tuned"))
    alone = Compiled(tuned, sizes=(320,))  # as tuning makes it
    small, large = made_for(64, refused=100), made_for(640)
    for compiled in (alone, small, large):
        cache.keep(key, compiled)
    served = {}
    for size in (2, 64, 90, 100, 319, 320, 2000):
        found = cache.find(key, (size,))
        assert found is not None
        served[size] = found[0].made_for
    assert served == {2: (64,), 64: (64,), 90: (64,), 100: (640,), 319: (640,), 320: (320,), 2000: (640,)}
