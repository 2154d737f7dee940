"""own_lines: compiler output with the lines of a user's file, where the compiler counts those of the whole program.

Programs have #line directives (kernels/kernel_sources.py). PoCL's compiler follows them; NVIDIA's names `<kernel>` and
the line of the program's text.
"""

from __future__ import annotations

import re

_DIRECTIVE = re.compile(r'#line (\d+)(?: "([^"]*)")?')
# A file's name, or none, line, and perhaps column: `<kernel>:34:5: error:`, `:34:5: error:`, `34:5: error:`.
_PLACE = re.compile(
    r"^(?P<name>(?:[^\s:]|:(?![:\d]))*?):?(?P<line>\d+)(?P<column>:\d+)?(?=: (?:fatal error|error|warning|note):)",
    re.MULTILINE,
)


def own_lines(log: str, text: str) -> str:
    """`log` of the program `text`, places in the regions of #line directives named as these do."""
    places, names = _places(text)

    def replaced(m: re.Match[str]) -> str:
        if m["name"].rpartition("/")[2] in names:
            return m[0]  # the compiler follows the directives
        number = int(m["line"])
        file, line = places[number - 1] if 0 < number <= len(places) else ("", 0)
        return f"{file}:{line}{m['column'] or ''}" if file else m[0]

    return _PLACE.sub(replaced, log) if names else log


def _places(text: str) -> tuple[list[tuple[str, int]], set[str]]:
    """File and line of each line of a program, ("", 0) where no directive names a file; and the files' names."""
    found: list[tuple[str, int]] = []
    names: set[str] = set()
    file, line = "", 0
    for row in text.splitlines():
        found.append((file, line if file else 0))
        line += 1
        if (m := _DIRECTIVE.fullmatch(row.strip())) is not None:
            file, line = m[2] or "", int(m[1])
            names |= {file} - {""}
    return found, names
