"""`opalite doctor`: checks the OpenCL installation and advises on faults."""

from __future__ import annotations

import dataclasses
import sys

import click
from rich.console import Console

from .. import knobs
from ..cache.cache_folder import cache_folder
from ..cl.device import doctor_checks
from .json_report import json_option, report

_SIGNS = {doctor_checks.GOOD: ("✓", "green"), doctor_checks.NOTE: ("!", "yellow"), doctor_checks.BAD: ("✗", "red")}


@click.command()
@json_option("Print the findings as JSON.")
def command() -> None:
    """Check the OpenCL installation and print a fix for every fault. Exits with 1 if no device can compute."""
    findings = examine()
    is_usable = any(f.device for f in findings)
    if not report({"is_usable": is_usable, "findings": [dataclasses.asdict(f) for f in findings]}):
        console = Console(highlight=False)
        for finding in findings:
            sign, style = _SIGNS[finding.level]
            console.print(f"[{style}]{sign}[/] ", end="")
            console.print(finding.what, markup=False, soft_wrap=True)
            if finding.fix:
                console.print(f"    fix: {finding.fix}", markup=False, soft_wrap=True)
    if not is_usable:
        sys.exit(1)


def examine() -> list[doctor_checks.Finding]:
    """All findings, causes before consequences."""
    loader = doctor_checks.check_loader()
    findings = [*loader, *doctor_checks.check_open_files()]
    folders = doctor_checks.icd_folders()
    findings += doctor_checks.check_icds(folders)
    findings += doctor_checks.check_unregistered(folders)
    findings += doctor_checks.check_permissions()
    devices: list[doctor_checks.Finding] = []
    platforms: list[str] = []
    if not any(f.level == doctor_checks.BAD for f in loader) and not any(f.is_fatal for f in findings):
        devices, platforms = doctor_checks.check_devices()
    findings += doctor_checks.check_gpus(platforms=platforms)
    findings += doctor_checks.check_pocl(platforms)
    findings += doctor_checks.check_linker()
    findings += devices
    findings += doctor_checks.check_cache(cache_folder(), knobs.get("OPALITE_CACHE"), knobs.get("OPALITE_CACHE_MB"))
    return findings
