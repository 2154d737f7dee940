"""The smallest graph that still fails in the same way."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

from onnx import helper

from .case import Array, Case, case_text, full, noise
from .judge import Fault
from .oracle import open_session, value_info
from .protos import copy_model, prune, reads
from .steps import with_all_outputs

Fails = Callable[[Case], bool]
WRONG = ("value", "nan", "inf")


def signature(kind: str, text: str) -> str:
    """What two faults have in common that are the same: for exceptions their words without names and numbers."""
    if kind in WRONG:
        return "value"
    if kind in ("hang", "crash", "again", "shape", "type"):
        return kind
    words = text.splitlines()[0].split(": ", 1)[-1]
    return kind + " " + re.sub(r"\W*\b\w*\d\w*\b\W*|'[^']*'|\[[^]]*\]|%\w+|\([^)]*\)", " ", words)[:60].strip()


def find_fault(case: Case, mode: str, seed: int) -> str:
    """The signature of what is wrong, or ''."""
    from .check import check

    try:
        check(case, mode, seed)
    except Fault as e:
        return signature(e.kind, e.text)
    return ""


def find_fault_apart(case: Case, mode: str, seed: int, timeout: float = 60) -> str:
    """The same in a process of its own, which may die or hang."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case"
        case.save(path)
        command = [sys.executable, "-m", "tests.fuzz", "--case", str(path), "--mode", mode, "--seed", str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return "hang"
    if done.returncode in (0, 1):
        return "" if done.returncode == 0 else "other"
    return "crash"


def shrink_file(path: Path, mode: str, seed: int, seconds: float = 120) -> str:
    """Shrink a failing case beside its files (NAME.small.py); its text."""
    case = Case.load(path)
    apart = find_fault_apart(case, mode, seed)
    if apart in ("hang", "crash"):
        find, wanted = find_fault_apart, apart
    else:
        find, wanted = find_fault, find_fault(case, mode, seed)
    if not wanted:
        return f"{path.stem} does not fail again"
    small = shrink(case, lambda c: find(c, mode, seed) == wanted, seconds)
    text = case_text(small, f"{wanted}: found as {path.stem}.")
    path.with_suffix(".small.py").write_text(text)
    small.save(path.with_name(f"{path.stem}-small"))
    return text


def shrink(case: Case, fails: Fails, seconds: float = 120) -> Case:
    """A small case for which `fails` holds, as it must for `case`."""
    until = time.monotonic() + seconds
    case = _one_feed(case, fails)
    steps = (drop_outputs, cut_heads, bypass, plain_attributes, smaller_sizes, plain_contents, fixed_inputs)
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for step in steps:
            while time.monotonic() < until and (found := _first(step(case), fails, until)) is not None:
                case, progress = found, True
    return case


def _first(candidates: Iterator[Case], fails: Fails, until: float) -> Case | None:
    for c in candidates:
        if time.monotonic() > until:
            return None
        try:
            if fails(c):
                return c
        except Exception:  # a candidate may be no valid model at all
            continue
    return None


def _one_feed(case: Case, fails: Fails) -> Case:
    for feeds in case.feeds:
        if fails(one := Case(case.model, [feeds])):
            return one
    return case


def _pruned(model: Any, feeds: list[dict[str, Array]]) -> Case:
    prune(model)
    names = {v.name for v in model.graph.input}
    return Case(model, [{n: a for n, a in f.items() if n in names} for f in feeds])


def tensors(case: Case) -> dict[str, Array]:
    """Contents of everything in the graph itself for the first feeds; {} where they cannot be had."""
    session = open_session(with_all_outputs(case.model))
    names = [o.name for o in session.get_outputs() if o.type.startswith("tensor(") and o.type != "tensor(bfloat16)"]
    return dict(zip(names, session.run(names, case.feeds[0]), strict=True))


def drop_outputs(case: Case) -> Iterator[Case]:
    """One output alone, the earliest first."""
    now = [o.name for o in case.model.graph.output]
    made = [o for n in case.model.graph.node for o in n.output if o]
    for name in made:
        if [name] == now:
            continue
        model = copy_model(case.model)
        del model.graph.output[:]
        model.graph.output.append(helper.make_empty_tensor_value_info(name))
        found = _pruned(model, case.feeds)
        if len(found.model.graph.node) < len(case.model.graph.node) or len(now) > 1:
            yield found
    if len(now) > 2:
        for dropped in now:
            model = copy_model(case.model)
            kept = [o for o in model.graph.output if o.name != dropped]
            del model.graph.output[:]
            model.graph.output.extend(kept)
            yield _pruned(model, case.feeds)


def cut_heads(case: Case) -> Iterator[Case]:
    """What is computed becomes an input or a constant, the latest first."""
    if len(case.feeds) > 1:
        return
    values = tensors(case)
    outs = {o.name for o in case.model.graph.output}
    for n in reversed(case.model.graph.node):
        names = [o for o in n.output if o in values and o not in outs]
        for name in names:
            for constant in (False, True):
                model = copy_model(case.model)
                for other in model.graph.node:
                    for i, o in enumerate(other.output):
                        if o == name:
                            other.output[i] = f"{name}_unused"
                feeds = dict(case.feeds[0])
                if constant:
                    model.graph.initializer.append(nph.from_array(values[name], name))
                else:
                    model.graph.input.append(value_info(name, values[name]))
                    feeds[name] = values[name]
                found = _pruned(model, [feeds])
                if len(found.model.graph.node) < len(case.model.graph.node):
                    yield found


def bypass(case: Case) -> Iterator[Case]:
    """A node's readers read one of its inputs of the same shape and type instead."""
    values = tensors(case) | case.feeds[0] | {t.name: nph.to_array(t) for t in case.model.graph.initializer}
    outs = {o.name for o in case.model.graph.output}
    for index, n in enumerate(case.model.graph.node):
        for o in n.output:
            if o in outs or o not in values:
                continue
            for i in n.input:
                if i in values and values[i].shape == values[o].shape and values[i].dtype == values[o].dtype:
                    model = copy_model(case.model)
                    for reader in model.graph.node[index + 1 :]:
                        for k, name in enumerate(reader.input):
                            if name == o:
                                reader.input[k] = i
                    if not any(o in reads(r) for r in model.graph.node):
                        yield _pruned(model, case.feeds)


def plain_attributes(case: Case) -> Iterator[Case]:
    """Without an attribute, or without the last inputs."""
    for index, n in enumerate(case.model.graph.node):
        for a in n.attribute:
            model = copy_model(case.model)
            kept = [b for b in n.attribute if b.name != a.name]
            del model.graph.node[index].attribute[:]
            model.graph.node[index].attribute.extend(kept)
            yield Case(model, case.feeds)
        if len(n.input) > 1:
            model = copy_model(case.model)
            del model.graph.node[index].input[-1]
            yield _pruned(model, case.feeds)
        if len(n.output) > 1:
            model = copy_model(case.model)
            del model.graph.node[index].output[-1]
            yield Case(model, case.feeds)


def smaller_sizes(case: Case) -> Iterator[Case]:
    """One size wherever it occurs, or one axis of one tensor, made smaller."""
    constants = {t.name: nph.to_array(t) for t in case.model.graph.initializer}
    arrays = [*case.feeds[0].values(), *constants.values()]
    sizes = sorted({n for a in arrays for n in a.shape if n > 1}, reverse=True)
    for size in sizes:
        for smaller in sorted({1, 2, size // 2, size - 1} - {0, size}):
            if smaller < size:
                yield _resized(case, constants, size, smaller, "")
    if len(arrays) <= 8:
        for name, a in (*case.feeds[0].items(), *constants.items()):
            for n in sorted(set(a.shape)):
                for smaller in (1, 2):
                    if smaller < n:
                        yield _resized(case, constants, n, smaller, name)


def _resized(case: Case, constants: dict[str, Array], size: int, smaller: int, only: str) -> Case:
    def cut(name: str, a: Array) -> Array:
        if only and name != only:
            return a
        if a.dtype.kind == "i" and a.ndim == 1 and a.size <= 6 and (a == size).any() and not only:
            return np.where(a == size, smaller, a).astype(a.dtype)
        return a[tuple(slice(0, smaller if n == size else n) for n in a.shape)].copy() if a.ndim else a

    model = copy_model(case.model)
    feeds = [{n: cut(n, a) for n, a in f.items()} for f in case.feeds]
    del model.graph.initializer[:]
    model.graph.initializer.extend(nph.from_array(cut(n, a), n) for n, a in constants.items())
    _declare(model, feeds[0])
    return Case(model, feeds)


def _declare(model: Any, feeds: dict[str, Array]) -> None:
    """Fixed shapes for all inputs, and none for the outputs."""
    for v in model.graph.input:
        v.CopyFrom(value_info(v.name, feeds[v.name]))
    for o in model.graph.output:
        o.type.Clear()


def plain_contents(case: Case) -> Iterator[Case]:
    """Contents that a word says: one value, or seeded noise."""

    def simple(a: Array) -> list[Array]:
        kind = a.dtype.str.lstrip("<|=")
        found = [full(a.shape, 1, kind), noise(a.shape, kind, 0), noise(a.shape, kind, 1)] if a.size > 4 else []
        if a.dtype.kind == "f" and a.size:
            with np.errstate(all="ignore"):
                found.append(np.round(a, 1))
        for i, other in enumerate(found):
            if np.array_equal(other, a, equal_nan=a.dtype.kind == "f"):
                return found[:i]
        return found

    for f, feeds in enumerate(case.feeds):
        for name, a in feeds.items():
            for other in simple(a):
                changed = [dict(x) for x in case.feeds]
                changed[f][name] = other
                yield Case(case.model, changed)
    for index, t in enumerate(case.model.graph.initializer):
        for other in simple(nph.to_array(t)):
            model = copy_model(case.model)
            model.graph.initializer[index].CopyFrom(nph.from_array(other, t.name))
            yield Case(model, case.feeds)


def fixed_inputs(case: Case) -> Iterator[Case]:
    """Declared shapes fixed; inputs made constants."""
    if len(case.feeds) > 1:
        return
    feeds = case.feeds[0]
    model = copy_model(case.model)
    _declare(model, feeds)
    if model != case.model:
        yield Case(model, case.feeds)
    if len(feeds) > 1:
        for name, a in feeds.items():
            model = copy_model(case.model)
            kept = [v for v in model.graph.input if v.name != name]
            del model.graph.input[:]
            model.graph.input.extend(kept)
            model.graph.initializer.append(nph.from_array(a, name))
            yield Case(model, [{n: b for n, b in feeds.items() if n != name}])
