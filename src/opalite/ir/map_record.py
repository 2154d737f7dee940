"""map_record: changes parts of records, which are dataclasses and containers nested in each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

PLAIN = frozenset((int, str, float, bool, bytes, type(None)))
"""The most frequent types of parts, which no change concerns."""


def map_record(x: Any, change: Callable[[Any], Any]) -> Any:
    """`x`, a record or container, with `change(part)` in place of its parts; `x` itself if nothing changes.

    change: returns a part itself if it is to be kept, and its own parts looked at. Not called for containers and PLAIN.
    """
    kind = type(x)
    if kind in PLAIN:
        return x
    if kind is tuple or kind is list:
        made = [i if type(i) in PLAIN else map_record(i, change) for i in x]
        return x if all(a is b for a, b in zip(x, made, strict=True)) else kind(made)
    if kind is dict:
        return {k: map_record(v, change) for k, v in x.items()}
    y = change(x)
    if y is not x:
        return y
    changed = {}
    for name in field_names(kind):
        old = getattr(x, name)
        if type(old) not in PLAIN and (new := map_record(old, change)) is not old:
            changed[name] = new
    return replace(x, **changed) if changed else x


_FIELDS: dict[type, tuple[str, ...]] = {}


def field_names(kind: type) -> tuple[str, ...]:
    """Names of the fields that a dataclass is made of; none for other classes. Cached."""
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(f.name for f in fields(kind) if f.init) if is_dataclass(kind) else ()
    return names
