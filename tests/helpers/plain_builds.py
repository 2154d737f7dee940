"""Programs compiled without optimisation, where PoCL stands in for another device.

PoCL's optimiser takes 1 to 5 s for a program of many barriers, and a tenth of that without. What it makes of kernels
that no processor is given is of use to nobody; that they compute what they should shows in plain code too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from opalite.cl.programs.compile_source import NO_OPTIMIZATION
from opalite.cl.programs.program_cache import ProgramCache, Spec
from opalite.cl.runtime import Runtime
from opalite.cl.runtime_counters import ProgramCounts


class PlainPrograms(ProgramCache):
    """What another cache holds, to which programs are added without optimisation: those of sources that begin so, or
    with options that match."""

    def __init__(self, programs: ProgramCache, sources: tuple[str, ...], options: re.Pattern[str] | None) -> None:
        self.__dict__ = {**programs.__dict__, "sources": sources, "options": options}

    def _plain(self, spec: Spec) -> Spec:
        text, options, name = spec
        is_plain = name.startswith(self.sources) or (self.options is not None and self.options.search(options))
        if is_plain and NO_OPTIMIZATION not in options:
            options = f"{options} {NO_OPTIMIZATION}".strip()
        return text, options, name

    def get(self, text: str, options: str, name: str = "", counts: ProgramCounts | None = None) -> Any:
        return super().get(*self._plain((text, options, name)), counts)

    def get_all(
        self,
        specs: Sequence[Spec],
        progress: Callable[[int, int], None] | None = None,
        counts: ProgramCounts | None = None,
    ) -> list[Any]:
        return super().get_all(list(map(self._plain, specs)), progress, counts)


def built_plain(rt: Runtime, sources: tuple[str, ...] = ("",), options: str | None = None) -> Runtime:
    """`rt`, with programs that are not optimised if its device is PoCL's: of `sources` (how their paths begin), and
    those in whose options the regular expression `options` is found."""
    if rt.info.family != "pocl":
        return rt
    other = copy.copy(rt)
    other.programs = PlainPrograms(rt.programs, sources, None if options is None else re.compile(options))
    return other
