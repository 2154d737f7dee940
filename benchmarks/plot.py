"""Plots the ratios of a comparison: a group of bars per model, whiskers from quartile to quartile.


python -m benchmarks.plot results.json results.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt


def plot(records: list[dict[str, Any]], path: Path) -> None:
    """Writes the PNG. records: the JSON of compare.py; each model's first engine is the line at 1."""
    baseline = records[0]["engines"][0]["engine"]
    names = list(dict.fromkeys(e["engine"] for r in records for e in r["engines"] if e["engine"] != baseline))
    height = 0.8 / max(len(names), 1)
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.5 * len(records) * max(1, len(names) * 0.6)))
    for i, name in enumerate(names):
        rows, medians, below, above = [], [], [], []
        for row, record in enumerate(records):
            for engine in record["engines"]:
                ratio = engine["ratio"]
                if engine["engine"] == name and ratio is not None:
                    rows.append(row + (i - (len(names) - 1) / 2) * height)
                    medians.append(ratio["median"])
                    below.append(ratio["median"] - ratio["low"])
                    above.append(ratio["high"] - ratio["median"])
        axes.barh(rows, medians, height, xerr=(below, above), label=name, capsize=2)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(records)), [r["model"] for r in records])
    axes.invert_yaxis()
    threads = records[0]["plan"]["threads"]
    axes.set_xlabel(f"time of one run, {baseline} = 1, {threads} threads")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
