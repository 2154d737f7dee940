"""Whether a command of the documents could be run: its program, options, values, files and settings are there.

The program's own parser is asked, by running it up to the point where it has read its arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import runpy
import sys
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import click

from opalite import knobs

from .commands import ROOT, Command
from .scene import fill_in

_OTHER_SETTINGS = ("tests/build_cache.py", "tests/device", "tests/portability")
"""Where environment settings are read that are no knobs of the package."""


class RefusedError(Exception):
    """A command that could not be run, with the reason."""


class _ParsedError(Exception):
    """The arguments were read: nothing more is to be run."""


def check(command: Command, folder: Path) -> None:
    """RefusedError unless the command could be run in `folder`, a scene.

    Of a command that is cut short only the options are looked at.
    """
    for name in command.environment:
        if name.startswith("OPALITE_") and not is_setting(name):
            raise RefusedError(f"{name} is no setting")
    program, *words = fill_in(command).words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        _expect(set(words) <= set(targets), f"the Makefile has {', '.join(targets)}")
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        asked = [e for w in words for part in re.findall(r"\[(.+)\]", w) for e in part.split(",")]
        _expect(set(asked) <= set(extras), f"pyproject.toml has the extras {', '.join(extras)}")
    elif program == "pytest" or words[:2] == ["-m", "pytest"]:
        for word in words:
            path = word.partition("::")[0]
            _expect("/" not in path or (ROOT / path).exists(), f"there is no {path}")
    elif program == "opalite":
        _check_arguments("opalite", words, folder, command.whole)
    elif words[0] == "-m":
        _expect(find_spec(words[1]) is not None, f"there is no module {words[1]}")
        _check_arguments(words[1], words[2:], folder, command.whole)
    elif (script := (ROOT / command.page).parent / words[0]).exists():
        _check_arguments(str(script), words[1:], folder, command.whole)
    else:  # a page's own file, which it shows under its name
        _expect(f"`{words[0]}`" in (ROOT / command.page).read_text(), f"there is no {words[0]}")


def is_setting(name: str) -> bool:
    """Whether an environment variable is a knob of the package, or one that the tests read."""
    if name in {knob.name for knob in knobs.all_knobs()}:
        return True
    folders = (ROOT / name for name in _OTHER_SETTINGS)
    files = (p for f in folders for p in ([f] if f.is_file() else f.rglob("*.py")))
    return any(f'"{name}"' in p.read_text(encoding="utf-8") for p in files)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RefusedError(otherwise)


def _check_arguments(program: str, words: Sequence[str], folder: Path, whole: bool) -> None:
    """Have the program read `words`; where they are cut short, look whether its options are among its own."""
    path = Path(program) if program.endswith(".py") else _source(program)
    text = path.read_text(encoding="utf-8")
    if program != "opalite" and not re.search(r"^import (argparse|click)$", text, re.MULTILINE):
        return  # it takes its arguments as they come
    options = [w.partition("=")[0] for w in words if w.startswith("-") and not w.lstrip("-").isdigit()]
    known: set[str] = set()
    try:
        said = _read_arguments(program, words, folder, known)
    except ModuleNotFoundError as e:  # a package of one benchmark or example
        known |= set(re.findall(r'"(--?[\w-]+)"', text))
        said = None if all(o in known for o in options) else f"without {e.name}: no option {options}"
    if said is not None and (whole or not known.issuperset(options)):
        raise RefusedError(said)


def _source(module: str) -> Path:
    found = find_spec(module)
    if found is not None and found.submodule_search_locations:
        found = find_spec(f"{module}.__main__")
    assert found is not None, f"there is no module {module}"
    assert found.origin is not None, f"{module} has no source"
    return Path(found.origin)


def _read_arguments(program: str, words: Sequence[str], folder: Path, known: set[str]) -> str | None:
    """The program's error about its arguments, or None; its options are added to `known`."""
    parse, invoke, click_parse = argparse.ArgumentParser.parse_args, click.Command.invoke, click.Command.parse_args

    def parse_args(self: argparse.ArgumentParser, *args: Any, **options: Any) -> NoReturn:
        known.update(self._option_string_actions)
        parse(self, *args, **options)
        raise _ParsedError

    def parse_click(self: click.Command, context: click.Context, args: list[str]) -> list[str]:
        known.update(o for p in self.get_params(context) for o in (*p.opts, *p.secondary_opts))
        return click_parse(self, context, args)

    def invoke_click(self: click.Command, context: click.Context) -> Any:
        return invoke(self, context) if isinstance(self, click.Group) else None

    said = io.StringIO()
    with (
        _in_folder(folder),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_args),
        mock.patch.object(click.Command, "parse_args", parse_click),
        mock.patch.object(click.Command, "invoke", invoke_click),
        mock.patch.object(sys, "argv", [program, *words]),
        mock.patch.object(sys, "path", [str(Path(program).parent), *sys.path] if "/" in program else sys.path),
        warnings.catch_warnings(action="ignore"),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            if program.endswith(".py"):
                runpy.run_path(program, run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__", alter_sys=False)
        except _ParsedError:
            return None
        except SystemExit as e:
            return said.getvalue() if e.code else None
    return None


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
