"""Constants of a graph by name; large ones stay in the model file until their contents are read."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, MutableMapping

from ...ir import Array
from ...ir.constants.lazy_array import LazyArray


class Constants(MutableMapping[str, Array]):
    """Arrays by name. `held` returns an array without loading it."""

    def __init__(self, arrays: Mapping[str, Array | LazyArray] | None = None) -> None:
        self._held: dict[str, Array | LazyArray] = (
            dict(arrays._held) if isinstance(arrays, Constants) else dict(arrays or {})
        )

    def __getitem__(self, name: str) -> Array:
        found = self._held[name]
        return found.read() if isinstance(found, LazyArray) else found

    def __setitem__(self, name: str, array: Array | LazyArray) -> None:
        self._held[name] = array

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def held(self, name: str) -> Array | LazyArray:
        """Return the array, or the LazyArray that loads it."""
        return self._held[name]

    def copy(self) -> Constants:
        """Return a copy with the same arrays."""
        return Constants(self)

    def without(self, names: Collection[str]) -> Constants:
        """Return a copy without `names`."""
        return Constants({n: a for n, a in self._held.items() if n not in names})


def held_by(arrays: Mapping[str, Array], name: str) -> Array | LazyArray:
    """Return array `name` of `arrays`, or the LazyArray that loads it if the mapping is Constants."""
    of: Mapping[str, Array] = next(m for m in arrays.maps if name in m) if isinstance(arrays, ChainMap) else arrays
    return of.held(name) if isinstance(of, Constants) else of[name]
