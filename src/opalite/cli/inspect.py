"""`opalite inspect`: shows graph, placement, costs and memory of a model."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..ir.device.device_descriptions import is_description
from ..ir.device.device_info import DeviceInfo
from ..run.report.explanation import Explanation, memory_line
from .console import make_console, print_caches, print_lines
from .described_device import described_plan, print_assumed
from .input_files import Preprocess
from .session_inputs import precision_lines, session_inputs, settle_precision
from .shared_options import file_option, model_argument, option_value, session_kwargs, session_options


@click.command()
@model_argument
@file_option
@click.option("--node", default=None, help="Tell everything about one node: candidates, estimates, refusals.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="Show only the first N nodes.  [default: all]")
@session_options
def command(model: str, node: str | None, limit: int) -> None:
    """Show graph, placement, costs and memory of MODEL without the results of a run.

    --device also takes the description of a device that is not here: a .json file of `opalite devices --export`, or a
    name that `opalite devices` lists.
    """
    if is_description(option_value("device")):
        _inspect_described(model, node, limit)
        return
    from ..run.api.session.inference_session import InferenceSession

    session = InferenceSession(model, **session_kwargs())
    console = make_console()
    meta = session.get_modelmeta()
    console.print(
        f"model    {model}  producer {meta.producer_name or '?'}  opset {session.opset or '?'}", soft_wrap=True
    )
    console.print(f"device   {_device_line(session.device)}", soft_wrap=True)
    for title, ports in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for port in ports:
            console.print(f"{title:8} {port.name}: {port.type} {list(port.shape)}", soft_wrap=True)
    inputs = session_inputs(session, Preprocess())
    print_lines(console, inputs.assumptions())
    with inputs.explained():
        settle_precision(session, inputs, console)
        explanation = session.explain(inputs.feeds)
    if node is not None:
        _print_details(console, explanation, node)
        return
    _print_nodes(console, explanation, limit, precision_lines(session, inputs))


def _inspect_described(model: str, node: str | None, limit: int) -> None:
    """Inspect a plan for a device that is not here."""
    plan = described_plan(model)
    console, explanation = make_console(), plan.explain()
    console.print(f"device   {_device_line(plan.device)}", soft_wrap=True)
    print_assumed(console, plan)
    if node is not None:
        _print_details(console, explanation, node)
        return
    expected = f"{1e3 * plan.seconds:.2f} ms a run expected, precision {plan.precision}"
    _print_nodes(console, explanation, limit, [expected])


def _print_details(console: Console, explanation: Explanation, node: str) -> None:
    try:
        console.print(explanation.details(node), soft_wrap=True)
    except KeyError:
        names = ", ".join(n.name for n in explanation.nodes if n.name)
        raise InputError(f"no node is named {node!r} after fusion; there are: {names}") from None


def _device_line(device: DeviceInfo) -> str:
    """The device's properties that decide kernels and work-groups."""
    parts = [f"waves of {device.wave_size}"] if device.wave_size > 1 else []
    if device.full_wave > device.wave_size:
        parts[-1:] = [f"waves of {device.wave_size} ({device.full_wave} in kernels of few registers)"]
    where = "" if device.local_mem_dedicated else ", a part of global memory"
    parts.append(f"{device.local_mem >> 10} KiB of local memory{where}")
    if device.cache_bytes:
        parts.append(f"{device.cache_bytes >> 10} KiB of cache")
    return f"{device.title}: {'; '.join(parts)}"


def _print_nodes(console: Console, explanation: Explanation, limit: int, lines: Sequence[str]) -> None:
    table = Table(box=None)
    for title, style in (
        ("#", {"justify": "right", "min_width": 3}),
        ("node", {"overflow": "ellipsis", "max_width": 28}),
        ("operators", {"overflow": "ellipsis", "max_width": 26}),
        ("kernel", {"min_width": 12}),
        ("output", {"overflow": "ellipsis", "max_width": 34}),
        ("place", {"min_width": 11}),
        ("MFLOP", {"justify": "right"}),
        ("why", {"overflow": "ellipsis"}),
    ):
        table.add_column(title, no_wrap=True, **style)
    shown = explanation.nodes[:limit] if limit else explanation.nodes
    for n in shown:
        table.add_row(
            str(n.index),
            n.name,
            n.origin or n.op,
            n.kernel or f"({n.target})",
            n.outputs[0].split(": ", 1)[-1] if n.outputs else "",
            n.places[0] if n.places else "",
            f"{n.flops / 1e6:.2f}",
            n.why,
        )
    console.print(table)
    hosts = explanation.host_nodes
    console.print(
        f"{len(explanation.nodes)} nodes, {explanation.launches} launches, {explanation.flops / 1e6:.1f} MFLOP, "
        f"{len(hosts)} on the host"
    )
    for m in explanation.memory:
        console.print(memory_line(m), soft_wrap=True)
    for note in explanation.notes:
        console.print(note, soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
    print_caches(console)
