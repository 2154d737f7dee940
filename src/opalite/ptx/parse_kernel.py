"""PtxKernel: a parsed kernel of the PTX text that NVIDIA's driver returns for a program (PTX ISA 9.0)."""

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
_UNSUPPORTED = (
    (re.compile(r"\bcall\b"), "it calls functions"),
    (re.compile(r"\b(tex|suld|sust|txq|suq)\."), "it reads or writes images"),
    (re.compile(r"\bbrx\.|\.branchtargets"), "it has a table of branches"),
    (re.compile(r"%(warpid|nwarpid|smid|nsmid|gridid|ctarank|clusterid|pm)"), "it reads where it runs"),
    (re.compile(r"\bbar\.(?!sync\s+0;)|\bbarrier\."), "it has barriers other than bar.sync 0"),
    (re.compile(r"\bmbarrier\.|\bcp\.async\.bulk|\bwgmma\.|\bsetmaxnreg\."), "it has instructions on whole kernels"),
    (re.compile(r"%envreg(?![0-5]\b)"), "it reads launch sizes"),
    (re.compile(r"\bfence\.|\bld\.(?:relaxed|acquire|volatile\.global)"), "its groups wait for each other"),
)
_ELSEWHERE = (
    r"st|red|atom|ldu|cp|prefetch|fence|membar|tex|suld|sust|bar|barrier|mma|wgmma|ldmatrix|shfl|vote|match|activemask"
    r"|bra|brx|call|ret|exit"
)
"""Instructions, besides loads, before which the launches that a kernel depends on must be done."""
AWAIT = "//linked-await"
"""PTX comment of a kernel before its first access to other launches' results or to local memory."""
AWAITS = "ONE_AWAITS;"
"""Replacement of AWAIT in `PtxKernel.body`."""
_ARITHMETIC = r"\.reg\b[^\n]*|(?!@|\{|ld\.(?!param)|(?:" + _ELSEWHERE + r")\b)[a-z][\w.:]*\s[^\n;{}]*;"
_BEGIN = re.compile(rf"(?:[ \t]*(?:{_ARITHMETIC})?[ \t]*\n)*")
"""Leading lines that compute only on the work-item's position and scalar arguments."""
_ATOMIC = re.compile(r"\b(?:atom|red)\.(?!shared)")
_COMMENT = re.compile(r"^\s*//[^\n]*\n", re.MULTILINE)
_WARP = re.compile(r"\.aligned\b|(?<!bar)\.sync\b|%laneid|%lanemask|\bvote\.|\bactivemask")


class PtxKernelError(OpaliteError):
    """The kernel cannot become part of another kernel."""


@dataclass(frozen=True)
class Param:
    """A kernel parameter. type: PTX type such as 'u32'. space: state space of a pointer, '' for a scalar."""

    name: str
    type: str
    space: str


@dataclass(frozen=True)
class Shared:
    """A variable in shared memory (OpenCL's local memory)."""

    name: str
    align: int
    nbytes: int


@dataclass(frozen=True)
class PtxKernel:
    """A parsed kernel.

    body: text between the braces without declarations of shared variables. AWAITS stands at the kernel's own AWAIT
    comment, else after the leading arithmetic. has_warp_operations: has instructions of a whole warp of 32.
    """

    name: str
    params: tuple[Param, ...]
    shared: tuple[Shared, ...]
    body: str
    has_barrier: bool
    has_warp_operations: bool

    @property
    def has_global_atomics(self) -> bool:
        """Return whether global atomics may distribute work among work-groups differently in each run."""
        return _ATOMIC.search(self.body) is not None


@lru_cache(maxsize=256)
def parse_kernel(text: str, name: str) -> PtxKernel:
    """Parse kernel `name` of the PTX `text`. Raises PtxKernelError if it cannot become part of another kernel."""
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
            raise PtxKernelError(f"its parameter '{line}' is not supported")
        params.append(Param(match[5], match[1], match[3] or ""))
    body = _COMMENT.sub("", _block_body(text[found.end() :]).replace(AWAIT, AWAITS))
    for pattern, reason in _UNSUPPORTED:
        if pattern.search(body):
            raise PtxKernelError(reason)
    shared = tuple(Shared(m[2], int(m[1]), int(m[3])) for m in _SHARED.finditer(body))
    body = _SHARED.sub("", body)
    if AWAITS not in body:
        begin = _BEGIN.match(body)
        assert begin is not None
        body = f"{begin[0]}\t{AWAITS}\n{body[begin.end() :]}"
    return PtxKernel(name, tuple(params), shared, body, "bar.sync" in body, bool(_WARP.search(body)))


def _block_body(text: str) -> str:
    """The text before the brace that closes the block in which `text` begins."""
    depth = 1
    for brace in _BRACE.finditer(text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    raise PtxKernelError("its program ends within it")
