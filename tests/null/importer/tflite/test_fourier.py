"""Fourier transforms of .tflite files, and complex numbers on their way, compared with LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import UnsupportedOpError

from ....helpers.tflite_files import TfliteFile
from .oracles import check_file, ran

F, C = np.float32, np.complex64
X = np.random.default_rng(6).standard_normal((2, 1, 4, 8)).astype(F)


def transformed(file: TfliteFile, lengths: list[int]) -> int:
    """Add RFFT2D of the input; its tensor."""
    main = file.main
    y = main.tensor(C, (2, 1, lengths[0], lengths[1] // 2 + 1), "frequencies")
    main.op("RFFT2D", [main.input(F, X.shape, "x"), main.constant(np.int32(lengths))], [y], "Rfft2dOptions")
    return y


@pytest.mark.parametrize("lengths", [[4, 8], [1, 8], [2, 16]])
@pytest.mark.parametrize("part", ["REAL", "IMAG", "COMPLEX_ABS"])
def test_parts_of_a_transform(part: str, lengths: list[int]) -> None:
    file = TfliteFile()
    held = transformed(file, lengths)
    y = file.main.tensor(F, (2, 1, lengths[0], lengths[1] // 2 + 1), "y")
    file.main.op(part, [held], [y])
    file.main.output(y)
    check_file(file.bytes(), [X])


def test_complex_numbers_in_views_and_products() -> None:
    """Axes are counted without that of the pairs, from the front and from the end."""
    file, shapes = TfliteFile(), [(2, 4, 5), (2, 1, 4, 5), (2, 4, 5), (2, 4, 5, 1), (8, 5), (8, 5)]
    main = file.main
    now = transformed(file, [4, 8])
    made = [main.tensor(C, shape, f"c{i}") for i, shape in enumerate(shapes)]

    def axis(i: int) -> int:
        return main.constant(np.int32(i))

    main.op("SQUEEZE", [now], [made[0]], "SqueezeOptions", squeezeDims=[-3])
    main.op("EXPAND_DIMS", [made[0], axis(1)], [made[1]], "ExpandDimsOptions")
    main.op("SQUEEZE", [made[1]], [made[2]], "SqueezeOptions")
    main.op("EXPAND_DIMS", [made[2], axis(-1)], [made[3]], "ExpandDimsOptions")
    main.op("RESHAPE", [made[3], main.constant(np.int32([-1, 5]))], [made[4]], "ReshapeOptions")
    main.op("MUL", [made[4], made[4]], [made[5]], "MulOptions")
    sizes, outs = main.tensor(np.int32, (2,), "sizes"), [main.tensor(F, (8, 5), f"y{i}") for i in range(2)]
    main.op("SHAPE", [made[5]], [sizes], "ShapeOptions", outType=2)
    for part, y in zip(("REAL", "IMAG"), outs, strict=True):
        main.op(part, [made[5]], [y])
    main.output(*outs, sizes)
    check_file(file.bytes(), [X])


def test_operators_that_know_no_complex_numbers_refuse_them() -> None:
    file = TfliteFile()
    held = transformed(file, [4, 8])
    y = file.main.tensor(C, (2, 1, 4, 5), "y")
    file.main.op("EXP", [held], [y], "ExpOptions")
    file.main.output(y)
    with pytest.raises(UnsupportedOpError, match=r"EXP node 'y' \(version 1\) has complex numbers"):
        ran(file.bytes(), [X])
