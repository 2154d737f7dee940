"""LazyList: a sequence computed at its first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class LazyList(Sequence[Any]):
    """The items of `make()`, computed at the first use."""

    def __init__(self, make: Callable[[], Sequence[Any]]) -> None:
        self._make = make
        self._made: Sequence[Any] | None = None

    def _items(self) -> Sequence[Any]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, index: Any) -> Any:
        return self._items()[index]

    def __len__(self) -> int:
        return len(self._items())
