"""Results as data (docs/portability.json) and as a page (docs/portability.md)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opalite.kernels import all_kernels

from .code import device_code, is_stale, last_change, stale_cells
from .implementations import IMPLEMENTATIONS, Implementation
from .known import AVOIDED, FAULTS, OUT_OF_REACH
from .run import BAD

_DOCS = Path(__file__).parents[2] / "docs"
DATA, PAGE, TEXT = _DOCS / "portability.json", _DOCS / "portability.md", Path(__file__).parent / "page.md"
_OUTCOMES = {"failed": "failed", "crashed": "crashed", "long": "timed out", "driver": "driver fault"}
"""What the page calls an outcome that is none of success."""
_EARLIER = "earlier"  # a commit that was not written down
_SAID = 240  # characters of a failure


def summarize(
    implementation: Implementation, results: Mapping[str, Mapping[str, Any]], reason: str, size: Mapping[str, int]
) -> dict[str, Any]:
    """What the page needs of one implementation's results; `reason` says why it is skipped, "" if it is not.

    size: how many cases and test functions there are (`read_size`).
    """
    rows: dict[str, Counter[str]] = {}
    code: dict[str, dict[str, set[str]]] = {}
    bad = []
    for test, result in results.items():
        outcome = str(result["outcome"])
        if outcome in BAD:
            fault = next(
                (f for f in FAULTS if f.explains(implementation.name, test, str(result.get("text", "")))), None
            )
            if fault is not None:
                outcome = "driver"
            else:
                bad.append({"test": test, "outcome": outcome, "said": _gist(str(result.get("text", "")))})
        rows.setdefault(_row(test), Counter())[outcome] += 1
        of_row = code.setdefault(_row(test), {"commits": set(), "digests": set()})
        of_row["commits"].add(str(result.get("code") or _EARLIER))
        of_row["digests"].add(str(result.get("digest", "")))
    summary = {
        "title": implementation.title,
        "skipped": reason,
        "seconds": round(sum(float(r["seconds"]) for r in results.values())),
        "cases": [len(results), size["cases"]],
        "functions": [len({test.partition("[")[0] for test in results}), size["functions"]],
        "runs": dict(sorted(Counter(_when(r) for r in results.values()).items())),
        "rows": {
            name: dict(counts) | {what: sorted(them) for what, them in code[name].items()}
            for name, counts in sorted(rows.items())
        },
        "bad": bad,
    }
    if not implementation.models:
        reached = {name for r in results.values() if r["outcome"] == "passed" for name in r.get("kernels", ())}
        kernels = {kernel.name for kernel in all_kernels()}
        summary["kernels"], summary["unreached"] = len(kernels), sorted(kernels - reached)
    return summary


def save(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Put `found`, by implementation, into the data, and write the page anew."""
    data = load()
    data |= {name: merged(data.get(name), column) for name, column in found.items()}
    names = [i.name for i in IMPLEMENTATIONS]
    data = {name: data[name] for name in sorted(data, key=names.index)}
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")


def load() -> dict[str, dict[str, Any]]:
    """The data; empty before the first run."""
    return json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}


def merged(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """A column whose rows that were run now take the place of those before, and the others stay, with their code.

    What tells of the extent of a whole run stays, too, where the short form was run.
    """
    if before is None:
        return dict(now)
    rows = {**before["rows"], **now["rows"]}
    bad = [b for b in before["bad"] if _row(b["test"]) not in now["rows"]] + list(now["bad"])
    is_short = not now["cases"][1]
    kept = {k: before[k] for k in ("seconds", "cases", "functions", "runs") if is_short and k in before}
    return {**before, **now, **kept, "rows": dict(sorted(rows.items())), "bad": bad}


def page(data: Mapping[str, Mapping[str, Any]]) -> str:
    """The page: the text of page.md with the matrix, the faults and what is open in place of its marks."""
    code = device_code()
    return (
        TEXT.read_text(encoding="utf-8")
        .replace("<!-- code -->", _code_line(data, code))
        .replace("<!-- matrix -->", _matrix(data, code))
        .replace("<!-- kernels -->", _kernels(data))
        .replace("<!-- faults -->", _faults())
        .replace("<!-- open -->", _open(data))
    )


def _code_line(data: Mapping[str, Mapping[str, Any]], code: str) -> str:
    """What the page's marks of staleness are relative to."""
    count, stale = sum(len(c["rows"]) for c in data.values()), len(stale_cells(data, code))
    return (
        f"When this page was written, `kernels/`, `cl/` and `pocl/` were as of `{last_change()}` (digest `{code}`), "
        f"and {stale} of {count} cells were stale."
    )


def _matrix(data: Mapping[str, Mapping[str, Any]], code: str) -> str:
    there = {name: column for name, column in data.items() if column["rows"]}
    rows = sorted({row for column in there.values() for row in column["rows"]})
    lines = ["| tests | " + " | ".join(c["title"] for c in there.values()) + " |", "| --- |" + " --- |" * len(there)]
    for row in rows:
        cells = [_cell(column["rows"].get(row, {}), code) for column in there.values()]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    for name, cell in (("**cases run**", _extent), ("**day and code**", _runs)):
        lines.append(f"| {name} | " + " | ".join(map(cell, there.values())) + " |")
    minutes = [f"{column['seconds'] / 60:.0f} min" for column in there.values()]
    lines.append("| time of the tests | " + " | ".join(minutes) + " |")
    skipped = [
        f"- {c['title']} " + (f"is skipped: {c['skipped']}." if c["skipped"] else "was not run yet.")
        for c in data.values()
        if not c["rows"]
    ]
    return "\n".join([*lines, *([""] if skipped else []), *skipped])


def _when(result: Mapping[str, Any]) -> str:
    """The day on which a test ran, and the code that it tested."""
    return f"{result['date']} {result['code']}" if result.get("code") else "earlier"


def _extent(column: Mapping[str, Any]) -> str:
    """How much of the suite a column is."""
    (cases, of_cases), (functions, of_functions) = column["cases"], column["functions"]
    return f"{cases} of {of_cases}, in {functions} of {of_functions} functions" if of_cases else f"{cases}"


def _runs(column: Mapping[str, Any]) -> str:
    """When a column's tests ran, on what code."""
    return ", ".join(f"{when}: {count}" for when, count in column["runs"].items())


def _cell(counts: Mapping[str, Any], code: str) -> str:
    """Outcomes, the commits at which they were found, and whether those are older than today's code."""
    parts = [f"{counts['passed']} ok"] if counts.get("passed") else []
    parts += [f"**{counts[k]} {word}**" for k, word in _OUTCOMES.items() if counts.get(k)]
    told = ", ".join(parts) or ("not applicable" if counts.get("skipped") else "")
    if not told:
        return ""
    return f"{told} {'stale ' if is_stale(counts, code) else ''}@{', '.join(counts.get('commits', [_EARLIER]))}"


def _kernels(data: Mapping[str, Mapping[str, Any]]) -> str:
    """Which kernels no test ran to the end on a simulator without a report, and why not."""
    lines = []
    for column in data.values():
        if "unreached" not in column or not column["rows"]:
            continue
        whys: dict[str, list[str]] = {}
        count = column["kernels"]
        for name in column["unreached"]:
            whys.setdefault(OUT_OF_REACH.get(name, "**not run**"), []).append(f"`{name}`")
        missing = "".join(f"; {', '.join(names)}: {why}" for why, names in whys.items())
        lines.append(f"- {column['title']}: {count - len(column['unreached'])} of {count}{missing}.")
    return "\n".join(lines)


def _faults() -> str:
    titles = {i.name: i.title for i in IMPLEMENTATIONS}

    def named(names: Sequence[str]) -> str:
        return ", ".join(titles[name] for name in names)

    lines = [f"- {named(a.implementations)}: {a.what}; {a.how}. `faults/{a.program}`" for a in AVOIDED]
    lines += [f"- {named(f.implementations)}: {f.why}. `faults/{f.program}`" for f in FAULTS]
    return "\n".join(lines)


def _open(data: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for column in data.values():
        for bad in column["bad"]:
            said = f": {bad['said']}" if bad["said"] else ""
            outcome = _OUTCOMES.get(bad["outcome"], bad["outcome"])
            lines.append(f"- {column['title']}, `{bad['test']}` {outcome}{said}")
    return "\n".join(lines) or "Nothing."


def _row(test: str) -> str:
    """The row of a test: its file's subject, or the model's name."""
    if match := re.search(r"test_shared_models\.py::test_outputs_match\[(.+)\]", test):
        return f"model {match[1].partition('.')[0]}"
    if test.startswith("machine::"):
        return f"machine: {test.partition('::')[2]}"
    return Path(test.partition("::")[0]).stem.removeprefix("test_").replace("_", " ")


def _gist(text: str) -> str:
    """The line of a failure that says most."""
    if text.startswith("worker "):
        return ""
    if "oclgrind reports:" in text:
        said = " ".join(line.strip("E \t") for line in text.partition("oclgrind reports:")[2].strip().splitlines()[:2])
    else:
        said = next((s[1:].strip() for s in text.splitlines() if re.match(r"E\s+\S*(Error|assert)", s)), "")
    return said[:_SAID].replace("|", "/").replace("`", "'")
