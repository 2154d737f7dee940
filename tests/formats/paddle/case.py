"""Programs by name: `case` adds one, a function or a Layer with its inputs."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(7)


def real(*shape):
    """Return float32 numbers of about unit size."""
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape):
    """Return float32 numbers from 0.1 to 1."""
    return RNG.uniform(0.1, 1.0, shape).astype(np.float32)


def ints(low, high, *shape, dtype=np.int64):
    """Return integers from `low` to `high` - 1."""
    return RNG.integers(low, high, shape).astype(dtype)


def bools(*shape):
    """Return random booleans."""
    return RNG.integers(0, 2, shape).astype(bool)


CASES: dict[str, tuple] = {}
"""Programs by name: a function or a Layer, and its inputs; an input may be (array, declared shape)."""


class Lazy:
    """A Layer that is made when its program is: static graphs have parameters of their own."""

    def __init__(self, make, static=None):
        """Initialise; `static`: a function that builds the same as a static graph, where the Layer cannot."""
        self.make = make
        self.static = static

    def __call__(self):
        return self.make()


def case(name, fn, *inputs):
    """Add a program."""
    assert name not in CASES, name
    CASES[name] = (fn, inputs)


X = real(2, 3, 4)
IMAGE = real(1, 4, 8, 8)
