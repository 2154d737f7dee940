"""A machine that runs the little of PTX that linked kernels of tests are made of: integers, float32, memory, barriers.

All threads of all groups are there at once, and each runs until it must wait. Memory is by address, a value for each,
whatever its size. A `bar` says that the threads of a warp come together: they must have come by one path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_LABEL = re.compile(r"([\w$]+):\s*(.*)")
_WORDS = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^\s,]+")


class Machine:
    """One kernel's text. `run` gives what its memory is afterwards."""

    def __init__(self, text: str) -> None:
        body = re.sub(r"//[^\n]*", "", text[text.index("\n{") :])
        threads = re.search(r"\.reqntid (\d+)", text)
        assert threads is not None
        self.threads = int(threads[1])
        self.code: list[tuple[str, list[str], str]] = []  # name, operands, predicate
        self.labels: dict[str, int] = {}
        self.tables: dict[str, list[str]] = {}
        for line in re.split(r"[;\n{}]", re.sub(r"\{([^{}\n]*)\}", r"<\1>", body)):
            self._read(line.strip())

    def _read(self, line: str) -> None:
        if match := _LABEL.match(line):
            self.labels[match[1]] = len(self.code)
            line = match[2]
            if line.startswith(".branchtargets"):
                self.tables[match[1]] = re.findall(r"\w+", line)[1:]
        if not line or line.startswith("."):
            return
        predicate = ""
        if line.startswith("@"):
            predicate, line = line[1:].split(None, 1)
        name, _, rest = line.partition(" ") if " " in line else line.partition("\t")
        self.code.append((name, _WORDS.findall(rest), predicate))

    def run(self, params: Mapping[str, int], memory: dict[Any, Any], groups: int) -> dict[Any, Any]:
        """Run `groups` groups. params: numbers by name. memory: values by address, a group's own by group too."""
        everyone = [Thread(self, c, t, params, memory) for c in range(groups) for t in range(self.threads)]
        steps = [(thread, thread.steps()) for thread in everyone]
        while steps:
            left = []
            for thread, step in steps:
                if (thread.waits and not self._may_go(thread, everyone)) or next(step, None) is not None:
                    left.append((thread, step))
            steps = left
            assert all(t.looks < 10_000_000 for t, _ in steps)
        return memory

    @staticmethod
    def _may_go(thread: Thread, everyone: list[Thread]) -> bool:
        """Whether as many threads have come to the barrier as it wants; they all go then."""
        number, wanted = thread.waits
        beside = [t for t in everyone if t.group == thread.group and t.waits and t.waits[0] == number]
        if len(beside) < wanted:
            return False
        assert len(beside) == wanted, f"{len(beside)} threads at a barrier of {wanted}"
        paths: dict[int, set[tuple[int, ...]]] = {}
        for t in beside:
            paths.setdefault(t.registers["%tid.x"] // 32, set()).add(t.path)
        if any(t.is_aligned for t in beside):
            assert all(len(p) == 1 for p in paths.values()), "a warp comes apart to a barrier for whole ones"
        any_of_them = any(t.tells for t in beside)
        for t in beside:
            t.waits, t.told, t.path = (), any_of_them, ()
        return True


class Thread:
    """waits: the barrier it is at, and how many are wanted there. is_aligned: that barrier is one for whole warps.
    path: the branches that it took since the last one."""

    def __init__(self, machine: Machine, group: int, number: int, params: Mapping[str, int], memory: Any) -> None:
        self.machine, self.group, self.params, self.memory = machine, group, params, memory
        self.registers: dict[str, Any] = {"%tid.x": number, "%ctaid.x": group}
        self.waits: Any = ()
        self.tells = self.told = self.is_aligned = False
        self.path: tuple[int, ...] = ()
        self.looks = 0

    def steps(self) -> Iterator[bool]:
        """Runs; yields where others may go on."""
        at = 0
        code = self.machine.code
        while at < len(code):
            name, operands, predicate = code[at]
            at += 1
            if predicate and bool(self.registers[predicate.lstrip("!")]) is predicate.startswith("!"):
                continue
            kind = name.split(".")[0]
            if kind == "ret":
                return
            if kind == "bra":
                self.path += (at,) if predicate else ()
                at = self.machine.labels[operands[0]]
            elif kind == "brx":
                at = self.machine.labels[self.machine.tables[operands[1]][self.value(operands[0])]]
            elif kind in ("bar", "barrier"):
                yield from self._barrier(name, operands)
            else:
                if name.startswith("ld.acquire"):
                    self.looks += 1
                    yield True
                self._compute(name, operands)

    def _barrier(self, name: str, operands: list[str]) -> Iterator[bool]:
        self.is_aligned = name.startswith("bar.") and not name.startswith("bar.warp")
        if name.endswith(".red.or.pred"):
            self.tells = bool(self.registers[operands[2]])
            self.waits = 0, self.machine.threads
        elif name == "bar.warp.sync":
            mask = self.value(operands[0])
            self.waits = ("warp", self.registers["%tid.x"] // 32, mask), mask.bit_count()
        else:
            wanted = self.value(operands[1]) if len(operands) > 1 else self.machine.threads
            self.waits = self.value(operands[0]), wanted
        while self.waits:
            yield True
        if name.endswith(".red.or.pred"):
            self.registers[operands[0]] = self.told

    def value(self, operand: str) -> Any:
        """Of a register, a number or a difference of two; 0 for where shared memory begins."""
        if operand.startswith("%"):
            return self.registers[operand]
        if operand.startswith("0f"):
            return np.uint32(int(operand[2:], 16)).view(np.float32)
        if operand == "linked_pool":
            return 0
        first, _, second = operand.partition("-")
        return int(operand) if not first else int(first) - int(second or 0)

    def _at(self, operand: str, name: str) -> Any:
        register, _, offset = operand.strip("[]").partition("+")
        address = self.registers[register] + int(offset or 0)
        return (self.group, address) if ".shared" in name else address

    def _compute(self, name: str, operands: list[str]) -> None:
        parts = name.split(".")
        kind, memory, values = parts[0], self.memory, self.registers
        if name.startswith("ld.param"):
            values[operands[0]] = self.params[operands[1].strip("[]")]
        elif kind == "ld":
            values[operands[0]] = memory.get(self._at(operands[1], name), 0)
        elif kind == "st":
            memory[self._at(operands[0], name)] = self.value(operands[1])
        elif kind in ("red", "atom"):
            where = self._at(operands[-2], name)
            before = memory.get(where, 0)
            memory[where] = before + self.value(operands[-1])
            if kind == "atom":
                values[operands[0]] = before
        else:
            target, *given = operands
            found = _OPERATIONS[kind](parts, *map(self.value, given))
            if parts[-1] == "f32":
                found = np.float32(found)
            elif kind != "setp" and parts[-1] in ("u32", "b32", "s32"):
                found = int(found)
            values[target] = found


_COMPARE = {"ge": "__ge__", "lt": "__lt__", "eq": "__eq__", "ne": "__ne__"}
_OPERATIONS: dict[str, Any] = {
    "mov": lambda parts, a: a,
    "cvt": lambda parts, a: a,
    "add": lambda parts, a, b: a + b,
    "sub": lambda parts, a, b: a - b,
    "mul": lambda parts, a, b: a * b,
    "mad": lambda parts, a, b, c: a * b + c,
    "div": lambda parts, a, b: a // b,
    "rem": lambda parts, a, b: a % b,
    "and": lambda parts, a, b: a & b,
    "shl": lambda parts, a, b: a << b,
    "xor": lambda parts, a, b: a ^ b,
    "setp": lambda parts, a, b: bool(getattr(a, _COMPARE[parts[1]])(b)),
}
