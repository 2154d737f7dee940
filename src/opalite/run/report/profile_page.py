"""render_page: a profile as a self-contained HTML page with timeline, roofline plot, tables and memory plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ..execute.memory.slot_memory import ArenaRegion
from .explanation import Explanation, memory_line
from .profile import LaunchRecord, Peaks, Profile, Row

_WIDTH = 1060
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; }
body { color: #1d2430; background: #fbfbfd; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #e4e6ec; }
td:first-child, th:first-child { text-align: left; }
svg { background: #fff; border: 1px solid #e4e6ec; display: block; }
"""
_COLOURS = (
    *("#3b6ea8", "#c8553d", "#588157", "#8e6c8a", "#d4a017"),
    *("#2a9d8f", "#6d597a", "#b56576", "#457b9d", "#7f7f7f"),
)


def render_page(profile: Profile, explanation: Explanation) -> str:
    """The HTML of the page, without scripts or external resources."""
    kernels = profile.by_kernel()
    colours = {r.name: _COLOURS[i % len(_COLOURS)] for i, r in enumerate(kernels)}
    parts = [
        f"<h1>{escape(profile.device)}</h1>",
        f"<p>{1e3 * profile.device_s:.3f} ms on the device of {1e3 * profile.run_s:.3f} ms a run (means of the "
        f"middle half of {profile.runs}), "
        f"{len(profile.by_node())} launches, {explanation.flops / 1e6:.1f} MFLOP.</p>",
        *(f"<p>Profiled one by one. Without profiling, {escape(q)}.</p>" for q in profile.queueing),
        "<h2>Timeline of the median run</h2>",
        _timeline(profile, colours),
        "<h2>Roofline</h2>",
        _roofline(profile, colours),
        "<h2>By kernel</h2>",
        _table("kernel", kernels, profile.peaks),
        "<h2>Memory plan</h2>",
        *(
            f"<p>{escape(memory_line(m))}</p>{_arena(regions)}"
            for m, regions in zip(explanation.memory, explanation.arenas, strict=True)
        ),
        "<h2>By launch</h2>",
        _table("node", profile.by_node(), profile.peaks),
    ]
    title = f"Profile on {escape(profile.device)}"
    body = "\n".join(parts)
    return f"<!doctype html><meta charset='utf-8'><title>{title}</title><style>{_STYLE}</style>\n{body}\n"


def _timeline(profile: Profile, colours: dict[str, str]) -> str:
    records = [r for r in profile.records if r.run in profile.typical_runs[:1]]
    if not records:
        return "<p>Nothing was launched.</p>"
    start = min(r.times.start for r in records)
    span = max(max(r.times.end for r in records) - start, 1e-9)

    def bar(r: LaunchRecord) -> str:
        x = _WIDTH * (r.times.start - start) / span
        width = max(_WIDTH * r.times.seconds / span, 0.5)
        tip = escape(f"{r.node} [{r.kernel}] {1e6 * r.times.seconds:.1f} us")
        return (
            f"<rect x='{x:.2f}' y='10' width='{width:.2f}' height='40' fill='{colours[r.kernel]}'>"
            f"<title>{tip}</title></rect>"
        )

    legend = "".join(
        f"<text x='{10 + 210 * (i % 5)}' y='{72 + 16 * (i // 5)}' font-size='11' fill='{c}'>■ {escape(k)}</text>"
        for i, (k, c) in enumerate(colours.items())
    )
    height = 80 + 16 * (len(colours) // 5)
    return f"<svg width='{_WIDTH}' height='{height}'>{''.join(map(bar, records))}{legend}</svg>"


def _roofline(profile: Profile, colours: dict[str, str]) -> str:
    peaks = profile.peaks
    rows = [r for r in profile.by_node() if r.seconds and r.flops and r.nbytes]
    if peaks is None or not rows:
        return "<p>No peaks were measured.</p>"
    height, low, high = 360, -3.0, 4.0  # log10 of FLOP per byte
    top = math.log10(peaks.flops) + 0.3
    bottom = top - 5.0

    def place(intensity: float, rate: float) -> tuple[float, float]:
        x = (min(max(math.log10(intensity), low), high) - low) / (high - low) * _WIDTH
        y = (top - min(max(math.log10(rate), bottom), top)) / (top - bottom) * height
        return x, y

    ridge = peaks.flops / peaks.bandwidth
    roof = [place(10**low, 10**low * peaks.bandwidth), place(ridge, peaks.flops), place(10**high, peaks.flops)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in roof)
    kernel_of = {r.node: r.kernel for r in profile.records}
    dots = []
    for r in rows:
        x, y = place(r.flops / r.nbytes, r.flops / r.seconds)
        tip = escape(f"{r.name}: {r.gflops:.1f} GFLOP/s, {r.flops / r.nbytes:.1f} FLOP/byte")
        colour = colours.get(kernel_of.get(r.name, ""), "#333")
        dots.append(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{colour}' fill-opacity='.7'><title>{tip}</title></circle>"
        )
    label = f"{peaks.flops / 1e9:.0f} GFLOP/s, {peaks.bandwidth / 1e9:.0f} GB/s; FLOP per byte runs to the right"
    return (
        f"<svg width='{_WIDTH}' height='{height}'><polyline points='{line}' fill='none' stroke='#1d2430'/>"
        f"{''.join(dots)}<text x='10' y='{height - 10}' font-size='11'>{label}</text></svg>"
    )


def _arena(regions: Sequence[ArenaRegion]) -> str:
    """Draw regions as boxes: steps on x, arena bytes on y. Views are drawn over the tensors that contain them."""
    end = max((r.offset + r.nbytes for r in regions), default=0)
    if not end:
        return ""
    height, steps = 220, max(r.last for r in regions) + 1

    def box(number: int, r: ArenaRegion) -> str:
        x, width = _WIDTH * r.first / steps, _WIDTH * (r.last + 1 - r.first) / steps
        y, tall = height * (1 - (r.offset + r.nbytes) / end), height * r.nbytes / end
        whole = f", inside {r.within}" if r.within else ""
        tip = escape(f"{r.label}: {r.nbytes} bytes from {r.offset} on{whole}, steps {r.first} to {r.last}")
        return (
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{tall:.1f}' stroke='#fff' stroke-width='.5' "
            f"fill='{_COLOURS[number % len(_COLOURS)]}' fill-opacity='.75'><title>{tip}</title></rect>"
        )

    label = f"{len(regions)} tensors in {end / 1e6:.2f} MB; {steps} steps run to the right"
    text = f"<text x='10' y='{height + 16}' font-size='11'>{label}</text>"
    boxes = "".join(box(i, r) for i, r in sorted(enumerate(regions), key=lambda n: bool(n[1].within)))
    return f"<svg width='{_WIDTH}' height='{height + 24}'>{boxes}{text}</svg>"


def _table(title: str, rows: Sequence[Row], peaks: Peaks | None) -> str:
    head = "".join(f"<th>{h}</th>" for h in (title, "launches", "ms", "share", "GFLOP/s", "GB/s", "of peak"))
    lines = []
    for r in rows:
        least = peaks.attainable(r.flops, r.nbytes) if peaks is not None else 0.0
        cells = (
            escape(r.name),
            str(r.launches),
            f"{1e3 * r.seconds:.3f}",
            f"{100 * r.share:.1f} %",
            f"{r.gflops:.1f}",
            f"{r.gbytes:.1f}",
            f"{100 * least / r.seconds:.0f} %" if r.seconds else "",
        )
        lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"
