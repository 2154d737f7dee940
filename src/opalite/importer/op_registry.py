"""Registry of importer functions: `@onnx_op` registers one by domain, name and first opset version."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..ir.plugins import watch
from .proto.graphdef import plain_domain

if TYPE_CHECKING:
    from ..ir.graph import Value
    from .walk.node_context import NodeContext, Trimmed

Handler = Callable[["NodeContext"], "Value | Trimmed | Sequence[Value | Trimmed | None]"]
_H = TypeVar("_H", bound=Handler)

_DOMAINS = ("onnx", "ml", "microsoft")  # folders of importer functions
_HANDLERS: dict[tuple[str, str], dict[int, Handler]] = {}
watch(lambda: [handler for versions in _HANDLERS.values() for handler in versions.values()])


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[_H], _H]:
    """Decorate the function that imports operators of `domain` from opset `since` to the next registered one."""

    def register(handler: _H) -> _H:
        for name in names:
            versions = _HANDLERS.setdefault((plain_domain(domain), name), {})
            if since in versions:
                raise ValueError(f"ONNX operator {name} since {since} is registered twice")
            versions[since] = handler
        return handler

    return register


def find_handler(op_type: str, domain: str, version: int) -> Handler | None:
    """Find the newest importer function with `since` <= `version`; None if the operator has none."""
    load_handlers()
    versions = _HANDLERS.get((domain, op_type), {})
    since = max((s for s in versions if s <= version), default=None)
    return None if since is None else versions[since]


def handled_ops() -> dict[tuple[str, str], list[int]]:
    """List the importer functions: (domain, name) of each operator and the opset versions at which they start."""
    load_handlers()
    return {key: sorted(versions) for key, versions in _HANDLERS.items()}


@cache
def load_handlers() -> None:
    """Import every operator module, so that its functions register themselves."""
    for domain in _DOMAINS:
        for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / domain)])):
            importlib.import_module(f"{__package__}.{domain}.{module}")
