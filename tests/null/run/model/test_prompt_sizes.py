"""For which sizes a prompt's kernels are chosen."""

from __future__ import annotations

import pytest

from opalite.ir.reserved import FEW, PROMPT
from opalite.run.model.prompt_sizes import prompt_sizes


@pytest.mark.parametrize(
    "sizes, held, new, wanted",
    [
        ((128, 128, 256), 0, 128, (PROMPT, PROMPT, PROMPT + 1)),
        ((3, 128, 228, 4096), 100, 128, (3, PROMPT, PROMPT + 100, 4096)),
        ((1, 257, 512), 256, 1, (1, 257, 512)),
        ((FEW, FEW, 512), 0, FEW, (FEW, FEW, 512)),
        ((PROMPT, PROMPT, 5000), 0, PROMPT, (PROMPT, PROMPT, 5000)),
    ],
)
def test_short_prompts_are_planned_as_long_ones(
    sizes: tuple[int, ...], held: int, new: int, wanted: tuple[int, ...]
) -> None:
    assert prompt_sizes(sizes, held, new, len(sizes) - 1) == wanted
