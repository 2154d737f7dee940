"""Every rewrite of the pipeline has a case that changes a graph and one that leaves it alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

from opalite.passes import pipeline

from .. import passes
from .texts import Case


def all_cases() -> Iterator[Case]:
    for module in pkgutil.walk_packages(passes.__path__, f"{passes.__name__}."):
        if module.name.rpartition(".")[2].startswith("test_") and module.name != __name__:
            yield from getattr(importlib.import_module(module.name), "CASES", ())


def rewrites() -> list[str]:
    """Names of the rules that pipeline.py runs."""
    calls = [n for n in ast.walk(ast.parse(inspect.getsource(pipeline))) if isinstance(n, ast.Call)]
    run = [c.args[1].value for c in calls if ast.unparse(c.func) == "run_rule" and isinstance(c.args[1], ast.Constant)]
    return sorted({*run, *(name for name, _ in pipeline.PORTABLE)})


@pytest.mark.parametrize("name", rewrites())
def test_every_rewrite_has_both_kinds(name: str) -> None:
    cases = [case for case in all_cases() if case.name == name]
    assert any(case.after is not None for case in cases), f"no case shows what {name} does"
    assert any(case.after is None for case in cases), f"no case shows what {name} leaves alone"
