"""Which of a kernel's parameters point to memory that it writes, by where addresses flow in its PTX.

Not by the path that is taken: a register that is ever computed from a pointer counts as an address in what it points
to, everywhere. Where a pointer goes that cannot be followed, its memory counts as written.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .entry import Entry

_STATEMENT = re.compile(r"^\s*(?:@!?%\w+\s+)?(?P<op>[a-z]\w*(?:[.:]+\w+)*)\s*(?P<rest>[^;]*);", re.MULTILINE)
_REGISTER = re.compile(r"%\w+")
_ADDRESS = re.compile(r"\[\s*(%\w+)")
_LOADS = ("ld.global", "ld.shared", "ld.local", "ld.const", "ldu", "prefetch", "ldmatrix", "ld.volatile.global")
_WRITES = ("st.global", "red", "atom", "st.volatile.global")


@lru_cache(maxsize=256)
def written(entry: Entry) -> frozenset[str]:
    """Names of the parameters whose memory kernel `entry` may write."""
    pointers = {p.name for p in entry.params if p.space == "global"}
    holds: dict[str, set[str]] = {}  # parameters that a register may point into
    flows: list[tuple[str, list[str]]] = []
    found: set[str] = set()
    stored: list[list[str]] = []
    for m in _STATEMENT.finditer(entry.body):
        op, rest = m["op"], m["rest"]
        registers = _REGISTER.findall(rest)
        if op.startswith("ld.param"):
            name = rest.split("[")[1].rstrip("] \t")
            if name in pointers:
                holds.setdefault(registers[0], set()).add(name)
        elif op.startswith("cp.async"):
            continue  # from global to shared memory
        elif op.startswith(_LOADS):
            continue  # what is loaded is a number: storing an address counts as writing to it
        elif op.startswith(("st.", "red.", "atom.")):
            known = op.startswith(_WRITES)
            addresses = _ADDRESS.findall(rest)
            values = [r for r in registers if r not in addresses]
            stored.append(values + addresses if known else registers)
            if not known and not op.startswith(("st.shared", "st.local", "red.shared", "atom.shared")):
                found |= pointers  # into memory that is not told
        elif registers:
            flows.append((registers[0], registers[1:]))
            if "|" in rest or rest.lstrip().startswith("{"):  # several results
                flows.extend((r, registers) for r in registers)
    changed = True
    while changed:
        changed = False
        for target, sources in flows:
            names = set[str]().union(*(holds.get(s, ()) for s in sources))
            if not names <= holds.get(target, set()):
                holds[target] = holds.get(target, set()) | names
                changed = True
    for registers in stored:
        for r in registers:
            found |= holds.get(r, set())
    return frozenset(found)
