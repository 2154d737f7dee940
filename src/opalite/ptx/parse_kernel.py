"""PtxKernel: a kernel as the text of PTX that NVIDIA's driver compiled it to (PTX ISA 9.0), taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ..errors import OpaliteError

_ENTRY = r"^(?:\.visible )?\.entry {}\((?P<params>[^)]*)\)(?P<directives>[^{{]*)\{{"
_BRACE = re.compile(r"[{}]")
_PARAM = re.compile(r"^\.param \.(\w+)( \.ptr \.(\w+))?( \.align \d+)? (\w+)$")
_SHARED = re.compile(r"^\t\.shared \.align (\d+) \.b8 (\S+)\[(\d+)\];$", re.MULTILINE)
_OUTSIDE = re.compile(r"^(?:\.(?:visible|extern|weak) )?\.(const|global|shared|func|tex|local|callprototype)\b", re.M)
_FOREIGN = (
    (re.compile(r"\bcall\b"), "it calls functions"),
    (re.compile(r"\b(tex|suld|sust|txq|suq)\."), "it reads or writes images"),
    (re.compile(r"\bbrx\.|\.branchtargets"), "it has a table of branches"),
    (re.compile(r"%(warpid|nwarpid|smid|nsmid|gridid|ctarank|clusterid|pm)"), "it asks where it runs"),
    (re.compile(r"\bbar\.(?!sync\s+0;)|\bbarrier\."), "it has barriers of a kind of its own"),
    (
        re.compile(r"\bmbarrier\.|\bcp\.async\.bulk|\bwgmma\.|\bsetmaxnreg\."),
        "it has instructions that count a whole kernel",
    ),
    (re.compile(r"%envreg(?![0-5]\b)"), "it asks for sizes"),
    (re.compile(r"\bfence\.|\bld\.(?:relaxed|acquire|volatile\.global)"), "its groups wait for each other"),
)
_ELSEWHERE = (
    *("st", "red", "atom", "ldu", "cp", "prefetch", "fence", "membar", "tex", "suld", "sust"),
    *(
        "bar",
        "barrier",
        "mma",
        "wgmma",
        "ldmatrix",
        "shfl",
        "vote",
        "match",
        "activemask",
        "bra",
        "brx",
        "call",
        "ret",
        "exit",
    ),
)
"""Instructions before which launches must be done that a kernel depends on, loads from memory apart."""
AWAIT = "//linked-await"
"""A comment that a kernel writes where it begins to read what other launches wrote, and to use local memory."""
AWAITS = "ONE_AWAITS;"
"""What stands there in the body of an Entry."""
_NUMBERS = r"\.reg\b[^\n]*|(?!@|\{|ld\.(?!param)|(?:" + "|".join(_ELSEWHERE) + r")\b)[a-z][\w.:]*\s[^\n;{}]*;"
_BEGIN = re.compile(rf"(?:[ \t]*(?:{_NUMBERS})?[ \t]*\n)*")
"""Lines that compute numbers from where a work-item is, and from what its launch is given."""
_ATOMIC = re.compile(r"\b(?:atom|red)\.(?!shared)")
_COMMENT = re.compile(r"^\s*//[^\n]*\n", re.MULTILINE)
_WARP = re.compile(r"\.aligned\b|(?<!bar)\.sync\b|%laneid|%lanemask|\bvote\.|\bactivemask")


class PtxKernelError(OpaliteError):
    """The text cannot be taken for a part of another kernel."""


@dataclass(frozen=True)
class Param:
    """type: of PTX, such as 'u32'. space: of what it points to, '' for a number."""

    name: str
    type: str
    space: str


@dataclass(frozen=True)
class Shared:
    """A variable in a work-group's own memory."""

    name: str
    align: int
    nbytes: int


@dataclass(frozen=True)
class PtxKernel:
    """body: what stands between the braces, declarations of shared variables apart, with AWAITS where it begins to read
    memory if it does not say itself where it begins to read what others wrote. meets: has barriers. is_warped: has
    instructions that a whole warp of 32 takes together."""

    name: str
    params: tuple[Param, ...]
    shared: tuple[Shared, ...]
    body: str
    meets: bool
    has_warp_operations: bool

    @property
    def has_global_atomics(self) -> bool:
        """Whether which work-group does what may be another in each run."""
        return _ATOMIC.search(self.body) is not None


@lru_cache(maxsize=256)
def parse_kernel(text: str, name: str) -> PtxKernel:
    """Kernel `name` of the PTX `text`. EntryError says why it cannot be a part of another kernel."""
    outside = _OUTSIDE.search(text)
    if outside is not None:
        raise PtxKernelError(f"its program has a {outside[1]} beside kernels")
    found = re.search(_ENTRY.format(re.escape(name)), text, re.MULTILINE)
    if found is None:
        raise PtxKernelError(f"kernel {name} is not in its program")
    params = []
    for line in filter(None, (s.strip() for s in found["params"].split(","))):
        match = _PARAM.match(line)
        if match is None:
            raise PtxKernelError(f"its parameter '{line}' is not understood")
        params.append(Param(match[5], match[1], match[3] or ""))
    body = _COMMENT.sub("", _up_to_its_end(text[found.end() :]).replace(AWAIT, AWAITS))
    for pattern, reason in _FOREIGN:
        if pattern.search(body):
            raise PtxKernelError(reason)
    shared = tuple(Shared(m[2], int(m[1]), int(m[3])) for m in _SHARED.finditer(body))
    body = _SHARED.sub("", body)
    if AWAITS not in body:
        begin = _BEGIN.match(body)
        assert begin is not None
        body = f"{begin[0]}\t{AWAITS}\n{body[begin.end() :]}"
    return PtxKernel(name, tuple(params), shared, body, "bar.sync" in body, bool(_WARP.search(body)))


def _up_to_its_end(text: str) -> str:
    """What stands before the brace that closes one which was open before `text`."""
    depth = 1
    for brace in _BRACE.finditer(text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    raise PtxKernelError("its program ends within it")
