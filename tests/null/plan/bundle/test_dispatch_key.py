"""plan/bundle/dispatch_key.py: which shapes a program of a bundle serves."""

from __future__ import annotations

import pytest

from opalite.plan.bundle.dispatch_key import DispatchKey

FIXED = DispatchKey({"x": (1, 3), "mask": (2,)})
OPEN = DispatchKey({"x": (1, 3), "mask": (3,)}, sizes={"x": (None, 0), "mask": (0,)})


@pytest.mark.parametrize(
    ("key", "shapes", "sizes"),
    [
        (FIXED, {"x": (1, 3), "mask": (2,)}, ()),
        (FIXED, {"x": (1, 3), "another": (7,)}, ()),
        (FIXED, {"x": (1, 4)}, None),
        (FIXED, {"x": (1, 3, 7)}, None),
        (FIXED, {"x": (1,)}, None),
        (OPEN, {"x": (1, 9), "mask": (9,)}, (9,)),
        (OPEN, {"x": (1, 9), "mask": (8,)}, None),  # one size, named twice
        (OPEN, {"x": (2, 9), "mask": (9,)}, None),
        (OPEN, {}, (3,)),
    ],
)
def test_sizes_of_shapes(key: DispatchKey, shapes: dict[str, tuple[int, ...]], sizes: tuple[int, ...] | None) -> None:
    assert key.sizes_of(shapes) == sizes


def test_shapes_are_written_as_compile_takes_them() -> None:
    assert (FIXED.describe(), OPEN.describe()) == ("x:1x3, mask:2", "x:1xs0, mask:s0")
