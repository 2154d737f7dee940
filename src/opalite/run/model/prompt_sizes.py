"""For which sizes kernels of a prompt are chosen on GPUs: prompts of all lengths share one plan, and the first is often
short. Tiles for 128 tokens took 1.9 times as long at 2,048 on an H200, and wanted the weights in an order of their own.
"""

from __future__ import annotations

from ...ir.reserved import FEW, PROMPT
from .far_sizes import Sizes


def prompt_sizes(sizes: Sizes, held: int, new: int, capacity: int) -> Sizes:
    """`sizes` as they would be with PROMPT new positions, where fewer come, but not few.

    held, new: positions of the caches, and that are added. capacity: number of the size that says for how many there
    is memory. Other sizes that are as large as those are taken for them.
    """
    if not FEW < new < PROMPT:
        return sizes
    more = PROMPT - new
    moved = [n + more if n in (new, held + new) else n for n in sizes]
    moved[capacity] = max(sizes[capacity], held + PROMPT + 1)
    return tuple(moved)
