"""The arrows of docs/architecture.md: who may import whom, and what stays small."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "opalite"
LEAVES = {"errors", "knobs", "lazy_dataclass", "status"}
ALLOWED: dict[str, set[str]] = {
    "status": set(),
    "errors": {"status"},
    "knobs": {"errors", "lazy_dataclass"},
    "lazy_dataclass": set(),
    "extras": {"errors"},
    "ir": LEAVES,
    "expr": LEAVES | {"ir"},
    "ops": LEAVES | {"ir", "expr"},
    "cost": LEAVES | {"ir"},
    "kernels": LEAVES | {"ir", "expr", "ops", "cost"},
    "layout": LEAVES | {"ir", "expr", "ops", "kernels"},
    "passes": LEAVES | {"ir", "expr", "ops", "kernels", "layout"},
    "plan": LEAVES | {"ir", "expr", "ops", "kernels", "layout", "passes"},
    "importer": LEAVES | {"extras", "ir", "expr", "ops"},
    "cache": LEAVES,
    "ptx": LEAVES,
    "pocl": LEAVES | {"cache"},
    "cl": LEAVES | {"ir", "cache", "pocl", "ptx"},
    "pocl/megakernel": LEAVES | {"ir", "cache", "cl"},
    "run/execute": LEAVES | {"cache", "ir", "ops", "kernels", "plan", "cl", "ptx", "pocl/megakernel"},
    "tune": LEAVES | {"ir", "expr", "ops", "kernels", "cache", "cl", "plan", "run/execute"},
    "run/model": LEAVES | {"ir", "plan", "importer", "cache", "cl", "tune", "run/execute"},
    "bench": LEAVES,
}
ALLOWED["run/precision"] = ALLOWED["run/model"] | {"run/model", "ops", "passes", "layout"}
ALLOWED["run/report"] = ALLOWED["run/precision"] | {"run/precision", "cost"}
ALLOWED["run/api"] = ALLOWED["run/report"] | {"run/report"}
ALLOWED["run/queue"] = ALLOWED["run/api"] | {"run/api", "pocl"}
ALLOWED["run"] = set()
ROOMS = {part for part in ALLOWED if part.startswith("run/")}
ALLOWED["lens"] = ALLOWED["run/report"] | {"run/report", "extras", "expr", "cost", "kernels", "passes", "layout"}
ALLOWED["media"] = LEAVES | {"extras", "ir", "importer", "ops", "run/api"}
ALLOWED["llm"] = LEAVES | {"extras", "importer", "run/api", "run/report", "run/model"}
ALLOWED["ray"] = LEAVES | {"extras", "ir", "cache", "cl", "run/api", "run/model"}
ALLOWED["lite"] = LEAVES | {"extras", "ir", "importer", "run/api"}
ALLOWED["paddle_inference"] = LEAVES | {"ir", "run/api"}
ALLOWED["kernel"] = LEAVES | ROOMS | {"ir", "expr", "ops", "kernels", "layout", "plan", "tune", "cl", "importer"}
ALLOWED["serve/wire"] = LEAVES
ALLOWED["serve/proto"] = LEAVES | {"serve/wire"}
ALLOWED["serve/engine"] = LEAVES | {"extras", "ir", "serve/wire", "serve/proto", "run/api", "llm", "cl"}
for front in ("serve/http", "serve/grpc", "serve/telemetry"):
    ALLOWED[front] = LEAVES | {"extras", "serve/wire", "serve/engine", "serve/proto"}
ALLOWED["serve"] = {part for part in ALLOWED if part.startswith("serve/")} | LEAVES | {"extras"}
ALLOWED["backend"] = LEAVES | ROOMS | {"ir", "cl", "importer"}
ALLOWED["capi"] = LEAVES | ROOMS
ALLOWED["onnxruntime"] = LEAVES | {"__init__"}
ALLOWED["cli"] = set(ALLOWED) | {"cli"}
ALLOWED["__init__"] = set(ALLOWED)
ALLOWED["__main__"] = {"cli"}
MODULES = sorted(ROOT.rglob("*.py"))
REPOSITORY = ROOT.parents[1]
SOURCES = [
    p for folder in ("src", "tests", "benchmarks", "examples") for p in sorted((REPOSITORY / folder).rglob("*.py"))
]

TESTS = REPOSITORY / "tests"
OF_NO_FOLDER = {
    "device": {"test_every_device.py"},
    "null": {
        "test_architecture.py",
        "test_bench_concurrent_processes.py",
        "test_bench_decoders.py",
        "test_bench_llama_gguf.py",
        "test_bench_models.py",
        "test_build_cache.py",
        "test_deploy.py",
        "test_distribution.py",
        "test_doc_commands.py",
        "test_docs.py",
        "test_example_faces.py",
        "test_example_super_resolution.py",
        "test_example_tiny_writer.py",
        "test_errors.py",
        "test_knobs.py",
        "test_lazy_dataclass.py",
        "test_minimum_versions.py",
        "test_pairwise_cases.py",
        "test_portability_code.py",
        "test_portability_matrix.py",
        "test_programs.py",
        "test_public_names.py",
    },
}
"""Tests that no folder of the package could hold: of the repository, the suite itself and the package as a whole."""


def part_of(parts: Sequence[str]) -> str:
    """The part that a path or a module's name below opalite belongs to: two folders deep where ALLOWED says so."""
    inner = "/".join(parts[:2])
    return inner if inner in ALLOWED else parts[0].removesuffix(".py")


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
    own = part_of(path.relative_to(ROOT).parts)
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] == "opalite" and len(parts) > 1 and (other := part_of(parts[1:])) in ALLOWED:
            assert other == own or other in ALLOWED[own], f"{path}:{line}: {own} must not import {other}"
        if parts[0] == "pyopencl":
            assert own == "cl", f"{path}:{line}: only cl/ imports pyopencl"
        if parts[0] == "onnx":
            assert own in ("importer", "backend"), f"{path}:{line}: {own} must not import onnx"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_files_hold_one_concept(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 400 or any("Longer than 400 lines:" in line for line in lines[:4]), (
        "split the file, one concept a file, or say in its docstring why it is 'Longer than 400 lines: ...'"
    )


def test_only_knobs_reads_the_environment() -> None:
    for path in MODULES:
        if path == ROOT / "knobs.py":
            continue
        assert "os.environ" not in path.read_text(), f"{path} reads the environment; declare a knob"


@pytest.mark.parametrize("suite", ["device", "null"])
def test_tests_mirror_the_package(suite: str) -> None:
    top = TESTS / suite
    files = sorted(top.rglob("test_*.py"))
    strange = {str(p.parent.relative_to(TESTS)) for p in files if not (ROOT / p.parent.relative_to(top)).is_dir()}
    assert not strange, f"folders of tests that src/opalite does not have: {sorted(strange)}"
    assert {p.name for p in files if p.parent == top} == OF_NO_FOLDER[suite], "move the test to its folder, or list it"
    missing = {str(p.parent) for p in files if not (p.parent / "__init__.py").exists()}
    assert not missing, f"no __init__.py, so that two tests of one name collide: {sorted(missing)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_docstrings_name_their_subject(path: Path) -> None:
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, described)]
    vague = [t.partition("\n")[0] for t in texts if t.startswith(("What ", "Which ", "How "))]
    assert not vague, "begin with the noun that is described"
