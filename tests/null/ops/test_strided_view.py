"""Movements and the views they end in, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ops.strided_view import Movement, View

SHAPE = (2, 3, 4, 5)
DATA = np.arange(2 * 3 * 4 * 5).reshape(SHAPE)


def check(moved: Movement | None, want: np.ndarray) -> None:
    assert moved is not None
    view = moved.view
    assert view is not None
    np.testing.assert_array_equal(view.read(DATA), want)
    assert view.last == want.max()


def test_movements_show_what_numpy_moves() -> None:
    moved = Movement.of(SHAPE).transpose((2, 0, 3, 1)).slice((1, 0, 0, 0), (2, 1, 3, 1), (2, 2, 2, 3))
    assert moved is not None
    check(moved.pick(2, 1), DATA.transpose(2, 0, 3, 1)[1::2, :, ::3][:, :, 1])


@pytest.mark.parametrize(
    ("perm", "shape"),
    [
        ((0, 1, 2, 3), (6, 20)),
        ((0, 1, 2, 3), (2, 1, 3, 2, 2, 5)),
        ((2, 3, 0, 1), (20, 6)),
        ((2, 3, 0, 1), (4, 5, 1, 6, 1)),
        ((1, 0, 2, 3), (3, 2, 20)),
    ],
)
def test_reshapes(perm: tuple[int, ...], shape: tuple[int, ...]) -> None:
    check(Movement.of(SHAPE).transpose(perm).reshape(shape), DATA.transpose(perm).reshape(shape))


@pytest.mark.parametrize(("perm", "shape"), [((1, 0, 2, 3), (6, 20)), ((0, 1, 3, 2), (6, 20)), ((3, 2, 1, 0), (120,))])
def test_an_uneven_axis_is_no_view_but_may_be_taken_apart(perm: tuple[int, ...], shape: tuple[int, ...]) -> None:
    moved = Movement.of(SHAPE).transpose(perm).reshape(shape)
    assert moved is not None
    assert moved.view is None
    check(moved.reshape([SHAPE[p] for p in perm]), DATA.transpose(perm))


def test_an_index_of_an_uneven_axis() -> None:
    moved = Movement.of(SHAPE).transpose((1, 0, 2, 3)).reshape((6, 20))
    assert moved is not None
    check(moved.pick(0, 3), DATA.transpose(1, 0, 2, 3).reshape(6, 20)[3])


def test_reshapes_that_no_steps_can_say() -> None:
    assert Movement.of(SHAPE).transpose((0, 2, 1, 3)).reshape((24, 5)) is not None
    assert Movement.of((2, 3)).transpose((1, 0)).reshape((2, 3)) is None
    assert Movement.of((4, 6)).slice((1, 0), (1, 1), (3, 6)) == Movement((((3, 6),), ((6, 1),)), 6)


def test_a_whole_view_reads_everything() -> None:
    np.testing.assert_array_equal(View.whole(SHAPE).transpose((3, 0, 1, 2)).read(DATA), DATA.transpose(3, 0, 1, 2))
