"""Inlining of a PTX kernel into a persistent kernel: grid positions become registers, scalars constants."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from .find_written_params import streamed
from .parse_kernel import AWAITS, PtxKernelError
from .step_dependencies import WARP, DynamicNumber, LinkedStep, Memory, is_streamed, layout, memory_of

_LOAD = re.compile(r"ld\.param\.(\w+)\s+(%\w+), \[(\w+)\];")
_OTHER_LOAD = re.compile(r"ld\.param\S*\s[^;]*\[(?!linked_)")
_OTHER_POSITION = re.compile(r"%(?:n?tid|n?ctaid)\b")
_SIZE = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4}
_SIZE |= {"b64": 8, "u64": 8, "s64": 8, "f64": 8}


def barrier(items: int, come: str = "bar") -> str:
    """Barrier of a work-group's `items`. come: 'barrier' if the threads of a warp may arrive separately (`link`)."""
    return "bar.warp.sync %my_bar;" if items < WARP else f"{come}.sync %my_bar, {items};"


_FIRST = 2


def place_in_block(number: int) -> str:
    """PTX operand of address `number` of a linked kernel."""
    return f"[linked_memory+{8 * number}]"


def pointer_text(register: str, a: Memory) -> str:
    """PTX that sets `register` to the address of memory argument `a`."""
    load = f"ld.param.u64 {register}, {place_in_block(_FIRST + a.param)};"
    return f"{load} add.u64 {register}, {register}, {a.first};" if a.first else load


def body_text(step: LinkedStep, i: int, memory: Sequence[str] = (), awaits: str = "", streams: bool = False) -> str:
    """PTX that computes a work-group of step number `i`.

    memory: registers with its pointers; empty if they are loaded from the parameters. awaits: text in place of AWAITS.
    streams: stream large constants. The text reads %my_tx... (work-item), %my_gx... (work-group), %my_at and %my_at64
    (offset of its shared memory) and %my_bar, and ends at ONE_NEXT_i. Raises PtxKernelError for unsupported code.
    """
    entry = step.entry
    places = dict(zip((id(a) for a in memory_of(step)), memory, strict=True)) if memory else {}
    given = {p.name: a for p, a in zip(entry.params, step.args, strict=True)}
    offsets, _ = layout(step)

    def address(register: str, name: str, is_wide: bool, further: int = 0) -> str:
        kind, begin = ("u64", "%my_at64") if is_wide else ("u32", "%my_at")
        first = f"mov.{kind} {register}, linked_pool; add.{kind} {register}, {register}, {begin}; "
        return first + f"add.{kind} {register}, {register}, {offsets[name] + further};"

    def load(m: re.Match[str]) -> str:
        argument = given[m[3]]
        if isinstance(argument, Memory):
            place = places.get(id(argument))
            return pointer_text(m[2], argument) if place is None else f"mov.b64 {m[2]}, {place};"
        if isinstance(argument, DynamicNumber):
            return _loaded(m[2], m[1], argument)
        return _constant(m[2], m[1], argument.raw)

    passing = (
        frozenset(n for n, a in given.items() if isinstance(a, Memory) and is_streamed(a)) if streams else frozenset()
    )
    text = _LOAD.sub(load, streamed(entry, passing).replace("$L__", f"$L{i}__"))
    if _OTHER_LOAD.search(text):
        raise PtxKernelError("it reads a parameter in parts")
    for j, s in enumerate(entry.shared):
        name = re.escape(s.name)
        taken = re.compile(rf"mov\.u(32|64)\s+(%\w+), {name}(?:\+(\d+))?;")
        text = taken.sub(lambda m, of=s.name: address(m[2], of, m[1] == "64", int(m[3] or 0)), text)  # type: ignore[misc]
        known = re.compile(rf"\[{name}((?:\+\d+)?)\]")  # a fixed offset in it
        if known.search(text):
            begin = address(f"%my_shared{j}", s.name, True)
            text = f"\t.reg .b64 %my_shared{j};\n\t{begin}\n" + known.sub(rf"[%my_shared{j}\1]", text)
        if re.search(rf"{name}(?!\w)", text):
            raise PtxKernelError(f"it uses the address of {s.name} in an unsupported way")
    for axis, n, g in zip("xyz", step.group, step.groups, strict=True):
        text = text.replace(f"%tid.{axis}", f"%my_t{axis}").replace(f"%ctaid.{axis}", f"%my_g{axis}")
        text = text.replace(f"%ntid.{axis}", str(n))
        text = text.replace(f"%nctaid.{axis}", str(g) if step.count_offset < 0 else f"%my_n{axis}")
    if _OTHER_POSITION.search(text):
        raise PtxKernelError("it reads its place in the grid in an unsupported way")
    text = text.replace("__local_depot", f"linked_depot{i}_")
    text = re.sub(r"%envreg[0-5]\b", "0", text)  # where a grid that is cut in parts begins
    text = re.sub(r"\bbar\.sync\s+0;", barrier(step.group[0] * step.group[1] * step.group[2]), text)
    text = re.sub(r"\bret;", f"bra ONE_NEXT_{i};", text)
    # Results of other groups in this launch must not come from the read-only cache.
    return text.replace("ld.global.nc.", "ld.global.").replace(AWAITS, awaits)


def _loaded(register: str, kind: str, argument: DynamicNumber) -> str:
    """PTX that loads a dynamic number from the launch parameter buffer."""
    if argument.nbytes != _SIZE.get(kind, 0):
        raise PtxKernelError(f"a number of {argument.nbytes} bytes is read as {kind}")
    return f"ld.global.{kind} {register}, [%one_table+{argument.at}];"


def _constant(register: str, kind: str, raw: bytes) -> str:
    """PTX that sets a register to a constant, as loading it would."""
    if len(raw) != _SIZE.get(kind, 0):
        raise PtxKernelError(f"a number of {len(raw)} bytes is read as {kind}")
    if register.startswith("%fd"):
        return f"mov.f64 {register}, 0d{struct.unpack('<Q', raw)[0]:016X};"
    if register.startswith("%f"):
        return f"mov.f32 {register}, 0f{struct.unpack('<I', raw)[0]:08X};"
    value = int.from_bytes(raw, "little", signed=kind.startswith("s"))
    if register.startswith("%rd"):
        return f"mov.b64 {register}, {value};"
    return f"mov.b{16 if register.startswith('%rs') else 32} {register}, {value};"
