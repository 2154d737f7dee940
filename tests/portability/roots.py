"""Whole machines as folders: a Debian root with a Python of its own and no compiler, entered by chroot.

One is of another architecture and runs under qemu-user, which the kernel calls for each of its programs (binfmt_misc,
in a namespace of its own: Linux 6.7 or newer). Nothing is installed on the system.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from .code import ROOT
from .fetch import debian_packages, run_command
from .implementations import RootSource

_QEMU = (
    ":opalite-aarch64:M::"
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:"
)
_ENTER = """
cd "$1"; shift
if [ -n "$QEMU" ]; then
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    printf '%s\\n' "$BINFMT" > /proc/sys/fs/binfmt_misc/register
fi
for d in proc sys dev; do mkdir -p $d; mount --rbind /$d $d; done
mkdir -p mnt/checkout mnt/models mnt/wheels tmp root
mount --bind "$CHECKOUT" mnt/checkout; mount --bind "$MODELS" mnt/models; mount --bind "$WHEELS" mnt/wheels
exec chroot $USERSPEC . /usr/bin/env -i "$@"
"""
_VERSIONS = ("2_34", "2_28", "2_27", "2_26", "2_17")
_SETTINGS = (
    "PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "PIP_NO_INDEX=1",
    "PIP_FIND_LINKS=/mnt/wheels",
    "PIP_DISABLE_PIP_VERSION_CHECK=1",
    "PYTHONPATH=/mnt/checkout/src",
    "PYTHONDONTWRITEBYTECODE=1",
)
_READY_S = 300.0


class Root:
    """A root below `folder`, with Opalite's checkout at /mnt/checkout and the shared models at /mnt/models."""

    def __init__(self, source: RootSource, folder: Path, models: Path) -> None:
        self.path = folder / f"machine-{source.suite}-{source.architecture}"
        self._source, self._folder, self._models = source, folder, models
        self._wheels = folder / f"wheels-{source.suite}-{source.architecture}"

    @property
    def is_installed(self) -> bool:
        return (self.path / ".complete").exists()

    def install(self) -> None:
        """Unpack the packages, and fetch the wheels. OSError or CalledProcessError where that fails."""
        if self.is_installed:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        suite, architecture = self._source.suite, self._source.architecture
        for package in debian_packages(suite, architecture, self._source.packages, self._folder):
            run_command("dpkg", "-x", package, self.path)
        for name in ("bin", "sbin", "lib", "lib64"):
            path, target = self.path / name, self.path / "usr" / name
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(path)
            if target.exists() and not path.is_symlink():
                path.symlink_to(f"usr/{name}")
        # What packages' scripts would make.
        certificates = sorted((self.path / "usr/share/ca-certificates").rglob("*.crt"))
        (self.path / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
        whole = "".join(c.read_text() for c in certificates)
        (self.path / "etc/ssl/certs/ca-certificates.crt").write_text(whole)
        self._write_users()
        (self.path / "tmp").mkdir(exist_ok=True)
        (self.path / "tmp").chmod(0o1777)
        if self._source.emulator is not None and self._emulator is None:
            raise OSError("qemu-user cannot be unpacked")
        self._fetch_wheels()
        (self.path / ".complete").touch()

    def _write_users(self) -> None:
        for name, text in (("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n")):
            (self.path / "etc" / name).write_text(text)

    def forget_image(self) -> None:
        """Take out what `image_steps` made before."""
        self._write_users()
        for folder in ("checkout", "wheels", "models", "var/cache/opalite", "usr/local/share/opalite"):
            shutil.rmtree(self.path / folder, ignore_errors=True)
        self.run("pip", "uninstall", "-q", "-y", "opalite-cl")

    def _fetch_wheels(self) -> None:
        """What pyproject.toml asks for, once for each list of it."""
        machine = {"amd64": "x86_64", "arm64": "aarch64"}[self._source.architecture]
        wanted, stamp = _requirements(machine), self._wheels / "requirements.txt"
        if stamp.exists() and stamp.read_text() == "\n".join(wanted):
            return
        platforms = [f"--platform=manylinux_{v}_{machine}" for v in _VERSIONS]
        platforms += [f"--platform=manylinux2014_{machine}", f"--platform=manylinux1_{machine}"]
        python = f"--python-version={self._source.python}"
        pip = (sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", python, "-d", self._wheels)
        run_command(*pip, *platforms, *wanted)
        stamp.write_text("\n".join(wanted))

    def prepare(self) -> None:
        """Make the virtual environment with what Opalite needs; it is imported from the checkout.

        OSError or CalledProcessError where that fails.
        """
        self._fetch_wheels()
        made, wanted = self.path / "venv" / "requirements.txt", (self._wheels / "requirements.txt").read_text()
        if made.exists() and made.read_text() == wanted:
            return
        self.run("sh", "-c", "set -e; python3 -m venv --clear /venv; pip install -q -r /mnt/wheels/requirements.txt")
        made.write_text(wanted)

    @property
    def _emulator(self) -> Path | None:
        if self._source.emulator is None:
            return None
        unpacked = self._folder / self._source.emulator
        if not unpacked.exists():
            run_command("sh", "-c", f"cd {shlex.quote(str(self._folder))} && apt-get download -q {unpacked.name}")
            run_command("dpkg", "-x", next(self._folder.glob(f"{unpacked.name}_*.deb")), unpacked)
        return next(unpacked.glob("usr/bin/qemu-aarch64-static"), None)

    def command(
        self, *command: str, user: str = "", settings: tuple[str, ...] = ()
    ) -> tuple[list[str], dict[str, str]]:
        """Words and environment by which `command` runs in the root."""
        emulator = self._emulator
        environment = os.environ | {
            "QEMU": str(emulator or ""),
            "BINFMT": f"{_QEMU}{emulator}:F",
            "CHECKOUT": str(ROOT),
            "MODELS": str(self._models),
            "WHEELS": str(self._wheels),
            "USERSPEC": f"--userspec={user}" if user else "",
        }
        isolation = "-m" if os.geteuid() == 0 and emulator is None else "-Urm"
        words = ["unshare", isolation, "--propagation", "private", "sh", "-ec", _ENTER, "_", str(self.path)]
        return [*words, *_SETTINGS, *settings, *command], environment

    def run(self, *command: str, user: str = "", settings: tuple[str, ...] = (), seconds: float = 600.0) -> str:
        """What a command in the root says. CalledProcessError, TimeoutExpired."""
        words, environment = self.command(*command, user=user, settings=settings)
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment, timeout=seconds)
        return done.stdout


def _requirements(machine: str) -> list[str]:
    """What Opalite and its server need on Linux on a processor, and what builds its wheel."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = about["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["serve"], *about["build-system"]["requires"]]
    return [r.partition(";")[0] for r in listed if "x86_64" not in r or machine == "x86_64"]


def image_steps(root: Root, models: Path) -> None:
    """Do in the root what deploy/docker/Dockerfile says, with the models of a repository, until its health is good.

    AssertionError, CalledProcessError or TimeoutExpired name the step that fails.
    """
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (ROOT / "deploy/docker/Dockerfile").read_text(), flags=re.M))
    settings = {"PYTHONPATH": ""}  # it runs what its steps install
    user, started, health = "", [], []
    root.forget_image()
    for name, rest in (line.split(" ", 1) for line in text.splitlines() if line):
        if name == "ENV":
            settings |= dict(word.split("=", 1) for word in shlex.split(rest))
        elif name == "USER":
            user = rest
        elif name == "COPY" and "--from" not in rest:
            *sources, target = rest.split()
            for source in sources:
                _copy(models if "$" in source else ROOT / source, root.path / target.lstrip("/"), "$" in source)
        elif name == "RUN":
            words = tuple(f"{k}={v}" for k, v in settings.items())
            root.run("sh", "-c", rest.replace(" --no-cache-dir", ""), user=user, settings=words)
        elif name in ("ENTRYPOINT", "CMD"):
            started += json.loads(rest)
        elif name == "HEALTHCHECK":
            health = json.loads(rest.partition("CMD ")[2])
    words, environment = root.command(*started, user=user, settings=tuple(f"{k}={v}" for k, v in settings.items()))
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            end = time.monotonic() + _READY_S
            while not _passes(root, health):
                assert server.poll() is None, f"the server ended: {(server.communicate()[1] or '')[-300:]}"
                assert time.monotonic() < end, "the server does not get ready"
                time.sleep(1)
        finally:
            server.terminate()
        assert server.wait(60) == 0, "the server did not end well"


def _copy(source: Path, target: Path, is_whole: bool) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target / source.name)


def _passes(root: Root, command: list[str]) -> bool:
    try:
        root.run(*command, seconds=30)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    return True


def steps(root: Root, models: Path, scratch: Path) -> Iterator[tuple[str, float, str]]:
    """(step, seconds, what went wrong or "") of a user's way in a root: run, doctor, the image's steps and serve."""
    repository = scratch / "repository"
    (repository / "mnist" / "1").mkdir(parents=True, exist_ok=True)
    shutil.copy(models / "mnist_cntk.onnx", repository / "mnist/1/model.onnx")
    made = {
        "opalite doctor": lambda: root.run("python", "-m", "opalite", "doctor"),
        "opalite run": lambda: root.run("python", "-m", "opalite", "run", "/mnt/models/mnist_cntk.onnx"),
        "image and serve": lambda: image_steps(root, repository),
    }
    for name, step in made.items():
        started, said = time.monotonic(), ""
        try:
            step()
        except subprocess.CalledProcessError as e:
            said = f"E Error: {name}: status {e.returncode}: {' '.join((e.stderr or e.stdout or '').split())[-300:]}"
        except (AssertionError, subprocess.TimeoutExpired, OSError) as e:
            said = f"E Error: {name}: {e}"
        yield name, time.monotonic() - started, said
