"""Which function imports which ONNX operator: `@onnx_op` registers it under domain, name and first opset version."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..ir.plugins import watch

if TYPE_CHECKING:
    from ..ir.graph import Value
    from .walk.node_context import NodeContext, Trimmed

Handler = Callable[["NodeContext"], "Value | Trimmed | Sequence[Value | Trimmed | None]"]
_H = TypeVar("_H", bound=Handler)

_DOMAINS = ("onnx", "ml", "microsoft")  # the folders of importer functions
_HANDLERS: dict[tuple[str, str], dict[int, Handler]] = {}
watch(lambda: [handler for versions in _HANDLERS.values() for handler in versions.values()])


def onnx_op(name: str, since: int = 1, domain: str = "") -> Callable[[_H], _H]:
    """Decorator: the function imports operator `name` of `domain` from opset `since` up to the next registered one."""

    def register(handler: _H) -> _H:
        versions = _HANDLERS.setdefault((plain_domain(domain), name), {})
        if since in versions:
            raise ValueError(f"ONNX operator {name} since {since} is registered twice")
        versions[since] = handler
        return handler

    return register


def plain_domain(domain: str) -> str:
    """The domain as one spelling: 'ai.onnx' is the default domain ''."""
    return "" if domain == "ai.onnx" else domain


def find_handler(op_type: str, domain: str, version: int) -> Handler | None:
    """The newest importer function whose `since` is at most `version`; None if there is none."""
    load_handlers()
    versions = _HANDLERS.get((domain, op_type), {})
    since = max((s for s in versions if s <= version), default=None)
    return None if since is None else versions[since]


def handled_ops() -> dict[tuple[str, str], list[int]]:
    """(domain, name) of every operator with an importer function, and the versions these start at."""
    load_handlers()
    return {key: sorted(versions) for key, versions in _HANDLERS.items()}


@cache
def load_handlers() -> None:
    """Import every module of the folders of operators, so that their functions register themselves."""
    for domain in _DOMAINS:
        for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / domain)])):
            importlib.import_module(f"{__package__}.{domain}.{module}")
