"""`opalite verify`: compares every node on the device with the reference."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..errors import InputError
from ..ir.precision import ROUNDED, Precision, PrecisionPolicy
from ..run.model.compile_options import parse_tolerance
from ..run.report.verify_nodes import Check, Tolerance, Verification, verify_model
from .console import make_console, print_lines
from .drift_report import Dump, report_drift
from .json_report import json_options, report
from .output_files import write_text
from .session_inputs import precision_lines, session_inputs, settle_precision
from .shared_options import (
    Real,
    file_option,
    model_argument,
    precision_options,
    seed_option,
    session_kwargs,
    shape_option,
)
from .tables import Column, print_table


@click.command()
@model_argument
@file_option
@seed_option
@click.option("--atol", type=Real(min=0), default=0.0, show_default=True, help="Absolute tolerance.")
@click.option(
    "--rtol",
    type=Real(min=0),
    default=None,
    help="Tolerance relative to the output's largest magnitude.  [default: by element type; 1e-4 for f32]",
)
@click.option(
    "--write-policy",
    "policy_file",
    type=click.Path(dir_okay=False),
    metavar="FILE.json",
    help="Find the nodes that must stay in fp32 and write them, for --precision FILE.json; verify by that policy.",
)
@click.option("--all", "show_all", is_flag=True, help="List every node, not only those that differ.")
@click.option(
    "--cumulative",
    is_flag=True,
    help="Follow errors along the graph: each node reads the device's results of the nodes before it.",
)
@click.option(
    "--against",
    metavar="PRECISION[:MEMORY]",
    help="With --cumulative: a second configuration to compare with, such as fp32 or fp16:image.",
)
@click.option(
    "--policies",
    is_flag=True,
    help="With --cumulative: policies that keep nodes in fp32, with error, time and bytes of each.",
)
@click.option(
    "--dump", metavar="DIR", help="With --cumulative: write each value, and its float64 reference, to .npz files."
)
@click.option("--output", "names", multiple=True, metavar="NAME", help="With --dump: only this value; may be repeated.")
@json_options
@shape_option
@precision_options
def command(
    model: str,
    atol: float,
    rtol: float | None,
    policy_file: str | None,
    show_all: bool,
    cumulative: bool,
    against: str | None,
    policies: bool,
    dump: str | None,
    names: tuple[str, ...],
) -> None:
    """Compare every node of MODEL with the reference. Names the first bad node and exits with 1 if there is one."""
    from ..run.api.session.inference_session import InferenceSession

    _check_options(cumulative, {"--against": against, "--policies": policies, "--dump": dump})
    if names and dump is None:
        raise InputError("--output chooses values for --dump; give --dump DIR too")
    dumped = None if dump is None else Dump(dump, names)
    console = make_console()
    settings: dict[str, Any] = {"device": None, "precision": None, "memory": "auto", **session_kwargs()}
    tolerance = settings.pop("tolerance", None)
    with InferenceSession(model, **settings, tolerance=tolerance) as session:
        inputs = session_inputs(session)
        allowed = None if tolerance is None else parse_tolerance(tolerance)
        if session.chooses_precision and policy_file is None:
            with inputs.explained():
                settle_precision(session, inputs, console)
            settings["precision"] = session.precision_policy
            console.print("\n".join(precision_lines(session, inputs)), soft_wrap=True, markup=False)
    with inputs.explained():
        if policy_file is not None:
            settings["precision"] = _write_policy(console, policy_file, model, inputs.feeds, settings, allowed)
        if cumulative:
            allowed = rtol if allowed is None else allowed
            report_drift(
                console,
                model,
                inputs.feeds,
                settings,
                allowed=allowed,
                against=against,
                with_steps=policies,
                dump=dumped,
                show_all=show_all,
                assumptions=inputs.assumptions(),
            )
            return
        found = verify_model(model, inputs.feeds, allowed=Tolerance(atol, rtol), **settings)
    checks = (*found.nodes, *found.rewrites, *found.outputs)
    bad = [c for c in checks if not c.passed]
    if report(_record(model, found)):
        sys.exit(1 if bad else 0)
    print_lines(console, inputs.assumptions())
    if show_all or bad:
        _print(console, checks if show_all else bad)
    if found.first_failure is not None:
        first = found.first_failure
        by = f" by {first.kernel}" if first.kernel else ""
        console.print(f"first bad: {first.what}{by} -> {first.output}", soft_wrap=True)
        console.print(f"{len(bad)} of {len(checks)} comparisons on {found.device} differ", soft_wrap=True)
        sys.exit(1)
    worst = max(found.outputs, key=lambda c: c.difference / (c.allowed or 1.0), default=None)
    console.print(
        f"{len(found.nodes)} node outputs and {len(found.outputs)} model outputs agree on {found.device}",
        soft_wrap=True,
    )
    if worst is not None:
        line = f"largest difference: {worst.difference:.2e} of {worst.allowed:.2e} allowed at {worst.what}"
        console.print(line, soft_wrap=True)


def _check_options(cumulative: bool, given: Mapping[str, object]) -> None:
    """InputError for options that --cumulative alone has a meaning for."""
    lacking = [name for name, value in given.items() if value]
    if lacking and not cumulative:
        raise InputError(f"{lacking[0]} belongs to --cumulative; give that too")


def _record(model: str, found: Verification) -> dict[str, Any]:
    def data(checks: Sequence[Check]) -> list[dict[str, Any]]:
        return [
            {
                "compared": c.what,
                "kernel": c.kernel,
                "output": c.output,
                "difference": c.difference,
                "allowed": c.allowed,
                "passed": c.passed,
                "problem": c.problem,
            }
            for c in checks
        ]

    return {
        "model": model,
        "device": found.device,
        "passed": found.first_failure is None,
        "nodes": data(found.nodes),
        "rewrites": data(found.rewrites),
        "outputs": data(found.outputs),
    }


def _write_policy(
    console: Console,
    path: str,
    model: str,
    feeds: Mapping[str, Any],
    settings: Mapping[str, Any],
    allowed: float | None,
) -> PrecisionPolicy:
    """Search a precision policy, print its result, and write it to `path`."""
    from ..run.precision.find_mixed_policy import find_policy

    if Path(path).suffix != ".json":
        raise InputError(f"policy '{path}' must end in .json, by which --precision knows one; write {path}.json")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"the folder of policy '{path}' does not exist; make it first")
    if settings["precision"] == ROUNDED:
        raise InputError(f"a policy is searched for half precision, not for {ROUNDED}; give fp16 or fp16_fast")
    asked = Precision.FP16_FAST if settings["precision"] == "fp16_fast" else Precision.FP16
    with console.status("searching") as status:
        found = find_policy(
            model,
            feeds,
            device=settings["device"],
            memory=settings["memory"],
            precision=asked,
            allowed=allowed,
            on_step=status.update,
        )
    write_text(path, found.policy.to_json())
    console.print(
        f"{asked.value} changes the outputs by {found.plain:.2g} of their largest value, "
        f"{found.allowed:.2g} is allowed; "
        f"with {len(found.policy.fp32)} of {found.nodes} nodes in fp32 by {found.difference:.2g}",
        soft_wrap=True,
    )
    console.print(f"wrote {path}: run with --precision {path}", soft_wrap=True)
    return found.policy


def _print(console: Console, checks: Sequence[Check]) -> None:
    columns = (
        Column(""),
        Column("compared", least=16),
        Column("kernel", least=10, rank=1),
        Column("output", least=8, rank=2),
        Column("difference", right=True, least=10),
        Column("allowed", right=True),
    )
    rows = []
    for c in checks:
        found = c.problem.partition("\n")[0] or f"{c.difference:.2e}"
        rows.append(("ok" if c.passed else "bad", c.what, c.kernel, c.output, found, f"{c.allowed:.2e}"))
    print_table(console, columns, rows)
