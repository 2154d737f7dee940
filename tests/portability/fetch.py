"""Packages of Debian's and Ubuntu's suites, fetched by apt into a folder of its own. Nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .implementations import SUITES

_APT = """Dir::State "{0}/state";
Dir::State::status "{0}/state/status";
Dir::Cache "{0}/cache";
Dir::Etc "{0}/etc";
APT::Architecture "{1}";
APT::Architectures {{"{1}";}};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Check-Valid-Until "false";
"""


def debian_packages(suite: str, architecture: str, packages: Sequence[str], folder: Path) -> list[Path]:
    """Files of packages and all that they depend on, below `folder`. OSError or CalledProcessError."""
    source = SUITES[suite]
    if not (shutil.which("apt-get") and shutil.which("dpkg") and Path(source.keyring).exists()):
        raise OSError(f"needs apt-get, dpkg and {source.keyring}")
    usual = architecture == "amd64" and tuple(packages) == source.packages
    apt = folder / (f"apt-{suite}" if usual else f"apt-{suite}-{architecture}-machine")
    for part in ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "state" / "status").write_text("")
    mirror = os.environ.get(source.setting, source.mirror)
    line = f"deb [signed-by={source.keyring}] {mirror} {suite} {source.components}\n"
    (apt / "etc" / "sources.list").write_text(line)
    (apt / "apt.conf").write_text(_APT.format(apt, architecture))
    environment = os.environ | {"APT_CONFIG": str(apt / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
    run_command("apt-get", "update", "-q", env=environment)
    run_command("apt-get", "install", "-y", "-q", "--download-only", *packages, env=environment)
    return sorted((apt / "cache" / "archives").glob("*.deb"))


def run_command(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run it; CalledProcessError, which holds what it said."""
    subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env=env)
