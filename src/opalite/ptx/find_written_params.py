"""Data flow of pointers in a PTX kernel: parameters whose memory the kernel writes, or reads before it waits.

The analysis ignores control flow: a register that is ever computed from a pointer counts as an address in its memory
everywhere. Memory of pointers that cannot be tracked counts as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from .parse_kernel import AWAITS, PtxKernel

_STATEMENT = re.compile(r"^\s*(?:@!?%\w+\s+)?(?P<op>[a-z]\w*(?:[.:]+\w+)*)\s*(?P<rest>[^;]*);", re.MULTILINE)
_REGISTER = re.compile(r"%\w+")
_ADDRESS = re.compile(r"\[\s*(%\w+)")
_LOADS = ("ld.global", "ld.shared", "ld.local", "ld.const", "ldu", "prefetch", "ldmatrix", "ld.volatile.global")
_CONSTANT_LOAD = re.compile(r"ld\.global\.nc\.((?:\w+\.)*\w+\s[^;\[]*\[\s*(%\w+)[^\];]*\];)")
_LABEL = re.compile(r"^\s*(\$?\w+):", re.MULTILINE)
_TARGET = re.compile(r"\bbra(?:\.uni)?\s+(\$?\w+);")
_ELSEWHERE = ("ld", "st", "red", "atom", "bar", "barrier", "cp.", "mma", "wgmma", "shfl", "vote", "ret", "exit", "brx")
_COPIES = ("cp.async.ca.shared.global", "cp.async.cg.shared.global")
_WRITES = ("st.global", "red", "atom", "st.volatile.global")


@lru_cache(maxsize=256)
def written(entry: PtxKernel) -> frozenset[str]:
    """Names of the parameters whose memory kernel `entry` may write."""
    pointers = {p.name for p in entry.params if p.space == "global"}
    found: set[str] = set()
    holds = _holds(entry)
    for m in _STATEMENT.finditer(entry.body):
        op, rest = m["op"], m["rest"]
        if not op.startswith(("st.", "red.", "atom.")):
            continue
        known = op.startswith(_WRITES)
        registers = _REGISTER.findall(rest)
        if not known and not op.startswith(("st.shared", "st.local", "red.shared", "atom.shared")):
            found |= pointers  # unknown address space
        for r in registers:
            found |= holds.get(r, frozenset())
    return frozenset(found)


@lru_cache(maxsize=256)
def read_first(entry: PtxKernel) -> frozenset[str] | None:
    """Names of the parameters whose memory kernel `entry` reads before it waits for other launches.

    None if the kernel has no AWAITS, or does anything but reading before AWAITS.
    """
    before, mark, after = entry.body.partition(AWAITS)
    if not mark or AWAITS in after:
        return None
    labels = set(_LABEL.findall(before))
    if not set(_TARGET.findall(before)) <= labels or labels & set(_TARGET.findall(after)):
        return None  # some work-item may skip or repeat AWAITS
    holds = _holds(entry)
    found: set[str] = set()
    for m in _STATEMENT.finditer(before):
        op, rest = m["op"], m["rest"]
        if op.startswith(("ld.global", *_COPIES)):
            read = _ADDRESS.findall(rest)[op.startswith(_COPIES) :]  # the first address of a copy is its target
            sources = [holds.get(r, frozenset()) for r in read]
            if not sources or not all(sources):
                return None
            found.update(*sources)
        elif op.startswith(_ELSEWHERE) and not op.startswith("ld.param"):
            return None
    return frozenset(found)


@lru_cache(maxsize=256)
def streamed(entry: PtxKernel, names: frozenset[str]) -> str:
    """The kernel's body with streaming loads (ld.global.cs) from the memory of parameters `names`."""
    holds = _holds(entry)

    def load(m: re.Match[str]) -> str:
        known = holds.get(m[2], frozenset())
        return f"ld.global.cs.{m[1]}" if known and known <= names else m[0]

    return _CONSTANT_LOAD.sub(load, entry.body) if names else entry.body


@lru_cache(maxsize=256)
def _holds(entry: PtxKernel) -> Mapping[str, frozenset[str]]:
    """Pointer parameters by register: the parameters from which the register may be computed."""
    pointers = {p.name for p in entry.params if p.space == "global"}
    holds: dict[str, frozenset[str]] = {}
    flows: list[tuple[str, list[str]]] = []
    for m in _STATEMENT.finditer(entry.body):
        op, rest = m["op"], m["rest"]
        registers = _REGISTER.findall(rest)
        if op.startswith("ld.param"):
            name = rest.split("[")[1].rstrip("] \t")
            if name in pointers:
                holds[registers[0]] = holds.get(registers[0], frozenset()) | {name}
        elif op.startswith(("cp.async", "st.", "red.", "atom.", *_LOADS)):
            continue  # loaded values are no pointers: storing an address counts as a write to its memory
        elif registers:
            flows.append((registers[0], registers[1:]))
            if "|" in rest or rest.lstrip().startswith("{"):  # several results
                flows.extend((r, registers) for r in registers)
    changed = True
    while changed:
        changed = False
        for target, sources in flows:
            names = frozenset[str]().union(*(holds.get(s, frozenset()) for s in sources))
            if not names <= holds.get(target, frozenset()):
                holds[target] = holds.get(target, frozenset()) | names
                changed = True
    return holds
