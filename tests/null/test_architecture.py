"""The arrows of docs/architecture.md: who may import whom, and what stays small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "opalite"
LEAVES = {"errors", "knobs", "status"}
ALLOWED: dict[str, set[str]] = {
    "status": set(),
    "errors": {"status"},
    "knobs": {"errors"},
    "ir": LEAVES,
    "ops": LEAVES | {"ir"},
    "kernels": LEAVES | {"ir", "ops"},
    "passes": LEAVES | {"ir", "ops", "kernels"},
    "plan": LEAVES | {"ir", "ops", "kernels", "passes"},
    "importer": LEAVES | {"ir", "ops"},
    "cl": LEAVES | {"ir"},
    "tune": LEAVES | {"ir", "ops", "kernels", "cl"},
    "bench": LEAVES,
    "run": LEAVES | {"ir", "ops", "kernels", "passes", "plan", "importer", "cl", "tune"},
    "backend": LEAVES | {"ir", "run", "cl", "importer"},
}
ALLOWED["capi"] = LEAVES | {"run"}
ALLOWED["cli"] = set(ALLOWED) | {"cli"}
ALLOWED["__init__"] = set(ALLOWED)
ALLOWED["__main__"] = {"cli"}
MODULES = sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[tuple[str, int]]:
    """(absolute module name, line) of every import, relative ones resolved; type-checking ones are left out."""
    package = ["opalite", *path.relative_to(ROOT).parts[:-1]]
    found: list[tuple[str, int]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.extend((a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.extend((f"{module}.{a.name}", node.lineno) for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(path)
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] == "opalite" and len(parts) > 1 and parts[1] in ALLOWED:
            assert parts[1] == own or parts[1] in ALLOWED[own], f"{path}:{line}: {own} must not import {parts[1]}"
        if parts[0] == "pyopencl":
            assert own == "cl", f"{path}:{line}: only cl/ imports pyopencl"
        if parts[0] == "onnx":
            assert own in ("importer", "backend"), f"{path}:{line}: only importer/ and backend.py import onnx"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_hold_one_concept(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 620, "split the file: one concept a file"


def test_only_knobs_reads_the_environment() -> None:
    for path in MODULES:
        if part_of(path) == "knobs":
            continue
        assert "os.environ" not in path.read_text(), f"{path} reads the environment; declare a knob"
