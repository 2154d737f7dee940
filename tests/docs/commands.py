"""The commands that the documents tell their readers to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *(ROOT / "examples" / name / "README.md" for name in ("super_resolution", "tiny_writer")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_STARTS = re.compile(r"(?:[A-Z_]+=\S+ )*(?:opalite|python|pip|make|pytest) (?![=,.(])")
_INLINE = re.compile(r"`([^`]+)`")
_COMMENT = re.compile(r"\s{2,}#.*|\s+# .*")
_LANGUAGES = ("", "sh", "bash", "console")


@dataclass(frozen=True)
class Command:
    """One command. whole: a line by itself, which a reader copies; else a mention in a sentence, perhaps cut short."""

    page: str
    line: int
    text: str
    whole: bool

    @property
    def environment(self) -> dict[str, str]:
        """The variables that are set in front of it."""
        return dict(word.split("=", 1) for word in _assignments(self.text))

    @property
    def words(self) -> list[str]:
        """Program and arguments, without quotation marks."""
        return shlex.split(self.text)[len(_assignments(self.text)) :]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def _assignments(text: str) -> list[str]:
    words = text.split()
    count = next(i for i, w in enumerate(words) if not re.fullmatch(r"[A-Z_]+=.*", w))
    return words[:count]


def collect(page: Path) -> Iterator[Command]:
    """The commands of a page, in order: lines of fenced shell blocks and of indented blocks, and code in sentences."""
    name = str(page.relative_to(ROOT))

    language: str | None = None  # of the fenced block around the line
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            language = None if language is not None else line.strip().removeprefix("```")
        elif language is None and not line.startswith("    "):
            for code in _INLINE.findall(line):
                if _STARTS.match(f"{code} ") and " " in code:
                    yield Command(name, number, code, whole=False)
        elif language is None or language in _LANGUAGES:
            for part in _COMMENT.sub("", line.strip()).split("; "):
                if _STARTS.match(f"{part} "):
                    yield Command(name, number, part, whole=True)


def all_commands() -> list[Command]:
    """The commands of all pages."""
    return [command for page in PAGES for command in collect(page)]
