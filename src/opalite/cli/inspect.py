"""`opalite inspect`: shows graph, placement, costs and memory of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from ..errors import InputError
from ..ir.device.device_descriptions import is_description
from ..ir.device.device_info import DeviceInfo
from ..plan.program import MemoryReport, NodeReport
from ..run.model.model_inputs_outputs import NodeArg
from ..run.report.explanation import Explanation, memory_line
from .console import make_console, print_caches, print_lines
from .described_device import described_plan, print_assumed
from .json_report import json_options, report
from .session_inputs import precision_lines, session_inputs, settle_precision
from .shared_options import file_option, model_argument, option_value, session_kwargs, session_options
from .tables import Column, print_table

_EVERY = 1 << 30


@click.command()
@model_argument
@file_option
@click.option(
    "--node", default=None, help="Show all about one node: candidate kernels, estimates, reasons of refusals."
)
@click.option("--all", "-v", "show_all", is_flag=True, help="List every node, not only the heaviest.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="List the first N nodes.")
@json_options
@session_options
def command(model: str, node: str | None, show_all: bool, limit: int) -> None:
    """Show graph, placement, costs and memory of MODEL without the results of a run.

    --device also takes the description of a device that is not here: a .json file of `opalite devices --export`, or a
    name that `opalite devices` lists.
    """
    shown = limit or (_EVERY if show_all else 0)
    if is_description(option_value("device")):
        _inspect_described(model, node, shown)
        return
    from ..run.api.session.inference_session import InferenceSession

    session = InferenceSession(model, **session_kwargs())
    console = make_console()
    inputs = session_inputs(session)
    with inputs.explained():
        settle_precision(session, inputs, console)
        explanation = session.explain(inputs.feeds)
    meta, ports = session.get_modelmeta(), (("input", session.get_inputs()), ("output", session.get_outputs()))
    sizes = {what + "s": [_port_record(p) for p in own] for what, own in ports}
    more = {"producer": meta.producer_name, "opset": session.opset, **sizes, "assumed": inputs.assumed}
    if node is None and report(_record(model, session.device, explanation, **more)):
        return
    opset = f", opset {session.opset}" if session.opset else ""
    console.print(f"model    {model}{opset}", soft_wrap=True)
    if show_all and meta.producer_name:
        console.print(f"producer {meta.producer_name}", soft_wrap=True)
    console.print(f"device   {_device_line(session.device, show_all)}", soft_wrap=True)
    for title, own in ports:
        for port in own:
            console.print(f"{title:8} {port.name}: {port.type} {_dims(port.shape)}", soft_wrap=True)
    print_lines(console, inputs.assumptions())
    if node is not None:
        _print_details(console, explanation, node)
        return
    _print_nodes(console, explanation, shown, precision_lines(session, inputs))


def _port_record(port: NodeArg) -> dict[str, Any]:
    return {"name": port.name, "type": port.type, "shape": list(port.shape)}


def _dims(shape: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _inspect_described(model: str, node: str | None, shown: int) -> None:
    """Inspect a plan for a device that is not here."""
    plan = described_plan(model)
    console, explanation = make_console(), plan.explain()
    if node is None and report(_record(model, plan.device, explanation, assumed=plan.assumed)):
        return
    console.print(f"device   {_device_line(plan.device, bool(shown))}", soft_wrap=True)
    print_assumed(console, plan)
    if node is not None:
        _print_details(console, explanation, node)
        return
    _print_nodes(console, explanation, shown, [f"precision {plan.precision}: {plan.estimate}"])


def _print_details(console: Console, explanation: Explanation, node: str) -> None:
    try:
        found = explanation.node(node)
        if not report({"node": _node_record(found)}):
            console.print(explanation.details(node), soft_wrap=True)
    except KeyError:
        names = ", ".join(n.name for n in explanation.nodes if n.name)
        raise InputError(f"no node is named {node!r} after fusion; there are: {names}") from None


def _device_line(device: DeviceInfo, with_properties: bool) -> str:
    """The device; on demand with the properties that decide kernels and work-groups."""
    if not with_properties:
        return device.title
    parts = [f"waves of {device.wave_size}"] if device.wave_size > 1 else []
    if device.full_wave > device.wave_size:
        parts[-1:] = [f"waves of {device.wave_size} ({device.full_wave} in kernels of few registers)"]
    where = "" if device.local_mem_dedicated else ", a part of global memory"
    parts.append(f"{device.local_mem >> 10} KiB of local memory{where}")
    if device.cache_bytes:
        parts.append(f"{device.cache_bytes >> 10} KiB of cache")
    return f"{device.title}: {'; '.join(parts)}"


_NODES = (
    Column("#", right=True),
    Column("node", least=14),
    Column("operators", least=10, rank=1),
    Column("kernel", least=12),
    Column("output", rank=2),
    Column("place", rank=3),
    Column("MFLOP", right=True, rank=2),
    Column("est. ms", right=True),
    Column("why", least=20, rank=4),
)
_KERNELS = (
    Column("kernel", least=16),
    Column("launches", right=True),
    Column("MFLOP", right=True),
    Column("est. ms", right=True),
    Column("share", right=True),
)
_HEAVIEST = 4
_MOST_KERNELS = 6


def _print_nodes(console: Console, explanation: Explanation, shown: int, lines: Sequence[str]) -> None:
    """Print a summary. shown: nodes to list, 0 for none."""
    hosts, seconds = explanation.host_nodes, sum(n.seconds for n in explanation.nodes)
    console.print(
        f"run      {len(explanation.nodes)} nodes, {explanation.launches} launches, {explanation.flops / 1e6:.1f} "
        f"MFLOP, about {1e3 * seconds:.3g} ms; {len(hosts)} on the host",
        soft_wrap=True,
    )
    print_lines(console, [memory_line(m) for m in explanation.memory] if shown else _memory_lines(explanation))
    print_lines(console, [*lines, *explanation.notes])
    console.print()
    if shown:
        rows = [_node_row(n) for n in explanation.nodes[:shown]]
        print_table(console, _NODES, rows)
    else:
        _print_kernels(console, explanation.nodes, seconds)
        heaviest = sorted((n for n in explanation.nodes if n.launches), key=lambda n: -n.seconds)[:_HEAVIEST]
        console.print()
        print_table(console, _NODES, [_node_row(n) for n in heaviest])
        console.print("Heaviest nodes first; --all lists all of them, --node NAME explains one.")
    if shown:
        print_caches(console)


def _memory_lines(explanation: Explanation) -> list[str]:
    totals = {
        "weights": sum(m.static for m in explanation.memory),
        "tensors": sum(m.totals.get(m.chosen, 0) + m.images for m in explanation.memory),
        "inputs and outputs": sum(m.separate for m in explanation.memory),
    }
    return ["memory   " + ", ".join(f"{what} {size / 1e6:.2f} MB" for what, size in totals.items())]


def _node_row(n: NodeReport) -> tuple[str, ...]:
    return (
        str(n.index),
        n.name,
        n.origin or n.op,
        n.kernel or f"({n.target})",
        n.outputs[0].split(": ", 1)[-1] if n.outputs else "",
        n.places[0] if n.places else "",
        f"{n.flops / 1e6:.2f}",
        f"{1e3 * n.seconds:.3f}" if n.seconds else "",
        n.why,
    )


def _print_kernels(console: Console, nodes: Sequence[NodeReport], total: float) -> None:
    groups: dict[str, list[NodeReport]] = {}
    for n in nodes:
        if n.launches or n.target == "host":
            groups.setdefault(n.kernel or f"({n.target})", []).append(n)
    order = sorted(groups.items(), key=lambda item: -sum(n.seconds for n in item[1]))
    if len(order) > _MOST_KERNELS:
        rest = order[_MOST_KERNELS - 1 :]
        order[_MOST_KERNELS - 1 :] = [(f"{len(rest)} others", [n for _, own in rest for n in own])]
    rows = []
    for name, own in order:
        seconds = sum(n.seconds for n in own)
        share = f"{100 * seconds / total:.1f} %" if total else ""
        flops = f"{sum(n.flops for n in own) / 1e6:.1f}"
        rows.append((name, str(sum(n.launches for n in own)), flops, f"{1e3 * seconds:.3f}", share))
    print_table(console, _KERNELS, rows)


def _record(model: str, device: DeviceInfo, explanation: Explanation, **more: Any) -> dict[str, Any]:
    return {
        "model": model,
        "device": device.title,
        "device_id": device.id,
        **more,
        "launches": explanation.launches,
        "flops": explanation.flops,
        "expected_ms": 1e3 * sum(n.seconds for n in explanation.nodes),
        "host_nodes": len(explanation.host_nodes),
        "precision": explanation.precision,
        "tier": explanation.tier,
        "notes": explanation.notes,
        "memory": [_memory_record(m) for m in explanation.memory],
        "nodes": [_node_record(n) for n in explanation.nodes],
    }


def _memory_record(m: MemoryReport) -> dict[str, Any]:
    return {
        "arena_bytes": m.totals.get(m.chosen, 0),
        "lower_bound_bytes": m.lower_bound,
        "strategy": m.chosen,
        "weight_bytes": m.static,
        "input_output_bytes": m.separate,
        "image_bytes": m.images,
    }


def _node_record(n: NodeReport) -> dict[str, Any]:
    return {
        "index": n.index,
        "name": n.name,
        "operators": n.origin or n.op,
        "model_nodes": [{"operator": op, "name": name} for op, name in n.model_nodes],
        "target": n.target,
        "kernel": n.kernel,
        "outputs": n.outputs,
        "places": n.places,
        "launches": n.launches,
        "flops": n.flops,
        "bytes": n.nbytes,
        "ms": 1e3 * n.seconds,
        "is_measured": n.measured,
        "why": n.why,
        "epilogue": n.epilogue,
        "parameters": n.params,
        "work_group": n.group,
        "candidates": [
            {"kernel": kernel, "layout": layout, "ms": 1e3 * seconds, "is_measured": measured}
            for kernel, layout, seconds, measured in n.candidates
        ],
        "refusals": n.refusals,
    }
