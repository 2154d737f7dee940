"""Import on demand of packages of extras, such as opalite-cl[llm]."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import ExtraError


def need(package: str, what_for: str, extra: str) -> Any:
    """Import `package`. Raises ExtraError that names the extra to install if it is missing."""
    try:
        return import_module(package)
    except ImportError as e:
        raise ExtraError(f"{what_for} needs the package '{package}': pip install 'opalite-cl[{extra}]'") from e
