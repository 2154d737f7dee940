"""The choices of a trace made again where sizes are plain: axes taken for different, lines chosen by sizes at hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from opalite.ir import symbols

_MODULES = {
    "always_equal": (
        "opalite.layout.assign_layouts.",
        "opalite.plan.memory.buffer_aliasing.",
        "opalite.kernels.data_movement.strided_copy.",
        "opalite.kernels.data_movement.strided_copy.",
        "opalite.kernels.elementwise.broadcast_row_major.",
    ),
    "hint_of": (
        "opalite.kernels.data_movement.strided_copy.",
        "opalite.kernels.matmul.gemm_cpu.",
        "opalite.kernels.conv.winograd.",
    ),
    "tile_at_most": ("opalite.kernels.conv.direct_packed.", "opalite.kernels.conv.winograd."),
    "may_be_less": (
        "opalite.kernels.conv.direct_packed.",
        "opalite.kernels.conv.winograd.",
        "opalite.kernels.data_movement.transpose_tiled.",
    ),
    "may_have_remainder": ("opalite.kernels.elementwise.elementwise_packed.",),
    "runs_along": ("opalite.kernels.elementwise.broadcast_row_major.",),
}
"""Where a question is asked whose answer changes no result: whether sizes are always equal, what they are now, and what
they may become."""


class Choices:
    """What was asked while a template was emitted, with the answers."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, tuple[Any, ...], Any]] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        def ask(name: str) -> Callable[..., Any]:
            def record(*question: Any) -> Any:
                answer = getattr(symbols, name)(*question)
                self._asked.append((name, question, answer))
                return answer

            return record

        with _instead(ask):
            yield

    @contextmanager
    def replayed(self, number: Callable[[Any], Any]) -> Iterator[None]:
        """The same answers to the same questions, in order. number: what a size is at the sizes that are plain now."""

        def plain(x: Any) -> Any:
            return tuple(map(plain, x)) if isinstance(x, tuple | list) else number(x)

        answers: dict[Any, list[Any]] = defaultdict(list)
        for name, question, answer in self._asked:
            assert name != "always_equal" or not answer or plain(question[0]) == plain(question[1]), "not always equal"
            answers[name, plain(question)].append(answer)

        def ask(name: str) -> Callable[..., Any]:
            def replay(*question: Any) -> Any:
                left = answers.get((name, plain(question)))
                if not left:
                    return getattr(symbols, name)(*question)
                return left.pop(0) if len(left) > 1 else left[0]

            return replay

        with _instead(ask):
            yield


@contextmanager
def _instead(ask: Callable[[str], Callable[..., Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, modules in _MODULES.items():
            for module in modules:
                stack.enter_context(patch(module + name, ask(name)))
        yield
