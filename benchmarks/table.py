"""Records of compare.py as one Markdown table: the slowest models first, geometric means at the end.


python -m benchmarks.table results.json
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def merge(path: Path, records: list[Record]) -> None:
    """Writes `records` to the JSON file `path`; other models' records in the file are kept in order."""
    known: dict[str, Record] = {}
    if path.is_file():
        known = {r["model"]: r for r in json.loads(path.read_text())}
    known.update((r["model"], r) for r in records)
    path.write_text(json.dumps(list(known.values()), indent=1) + "\n")


def against(record: Record, engine: str) -> float | None:
    """Time of the record's first engine over time of `engine`: below 1 the first is faster. None if it is missing."""
    for e in record["engines"][1:]:
        if e["engine"] == engine and e["ratio"] is not None:
            return 1 / float(e["ratio"]["median"])
    return None


def geometric_mean(values: list[float]) -> float:
    """Of at least one number."""
    return math.exp(sum(map(math.log, values)) / len(values))


def markdown(records: list[Record]) -> str:
    """The table. Ratios are the first engine's time over the other's, medians of ratios within rounds."""
    first = records[0]["engines"][0]["engine"]
    others = list(dict.fromkeys(e["engine"] for r in records for e in r["engines"] if e["engine"] != first))
    lines = [
        f"| model | {first} ms | " + " | ".join(f"{first} / {o}" for o in others) + " |",
        "| --- |" + " ---: |" * (1 + len(others)),
    ]
    for record in sorted(records, key=lambda r: -(against(r, others[0]) or 0.0)):
        ours = record["engines"][0]["run_s"]["median"] * 1e3
        cells = ["" if (a := against(record, o)) is None else f"{a:.2f}" for o in others]
        lines.append(f"| {record['model']} | {ours:.3g} | " + " | ".join(cells) + " |")
    means = []
    for o in others:
        found = [a for r in records if (a := against(r, o)) is not None]
        means.append(f"**{geometric_mean(found):.2f}**" if found else "")
    lines.append("| **geometric mean** | | " + " | ".join(means) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())))
