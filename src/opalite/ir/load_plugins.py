"""Imports the code of other packages that registers operators and kernels: entry points, and OPALITE_KERNELS.

Nothing is imported before a model is imported or planned. An installed package names its modules in the entry point
group `opalite.kernels`; OPALITE_KERNELS names files and modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from .. import knobs
from ..errors import InputError, OpaliteError, PluginError

GROUP = "opalite.kernels"
"""The entry point group. The names of its entry points are not used, their values are modules."""

_lock = threading.RLock()
_loaded: tuple[str, ...] | None = None  # OPALITE_KERNELS when plugins were loaded last
_loading = False
_searched = False  # for entry points
_files: dict[Path, ModuleType] = {}
_providers: dict[str, str] = {}  # distribution and version, or file, by module
failures: dict[str, str] = {}
"""Installed distributions whose modules could not be imported, with the reason."""


def load_plugins() -> None:
    """Import everything that has not been imported yet.

    PluginError or InputError for a fault of OPALITE_KERNELS. A fault of an installed package is a warning, since most
    models do without it, and is remembered in `failures`.
    """
    global _loaded, _loading, _searched
    wanted: tuple[str, ...] = knobs.get("OPALITE_KERNELS")
    if _loaded == wanted:
        return
    with _lock:
        if _loaded == wanted or _loading:  # what is imported asks again
            return
        _loading = True
        try:
            if not _searched:
                _searched = True
                _load_entry_points()
            for name in wanted:
                load_plugin(name)
            _loaded = wanted
        finally:
            _loading = False


def load_plugin(name: str) -> ModuleType:
    """The module at the path `name` of a .py file, or of that name, imported once. PluginError if it fails."""
    if not name.endswith(".py"):
        with _named(f"module {name}"):
            return importlib.import_module(name)
    path = Path(name).resolve()
    if path not in _files:
        if not path.is_file():
            raise InputError(f"there is no file '{name}' to import kernels from")
        _files[path] = _import_file(path)
    return _files[path]


def provider_of(module: str) -> str:
    """The origin of a module: its distribution with version, the file that was loaded, or the module's own name."""
    if module in _providers:
        return _providers[module]
    top = module.partition(".")[0]
    if top in _providers:
        return _providers[top]
    from importlib.metadata import packages_distributions, version

    for name in packages_distributions().get(top, ())[:1]:
        return f"{name} {version(name)}"
    return f"module {module}"


def _import_file(path: Path) -> ModuleType:
    """A module of a file, which finds its neighbours as a script does."""
    name = path.stem if path.stem not in sys.modules and path.stem not in sys.stdlib_module_names else f"{path.stem}_py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _providers[name] = path.name
    sys.path.insert(0, str(path.parent))
    try:
        with _named(f"'{path}'"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        with suppress(ValueError):
            sys.path.remove(str(path.parent))
    return module


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Errors of an import as PluginErrors that name what was imported, and the line that failed."""
    try:
        yield
    except OpaliteError as e:
        raise e.add_context(f"while importing kernels from {what}") from e
    except Exception as e:
        raise PluginError(f"kernels could not be imported from {what}: {describe_fault(e)}") from e


def describe_fault(e: BaseException) -> str:
    """Type and text of an exception with the line of another package's code that raised it."""
    own = str(Path(__file__).parents[1])
    text = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
    if isinstance(e, SyntaxError) and e.filename:
        return f"{type(e).__name__}: {e.msg} ({e.filename}:{e.lineno})"
    frames = traceback.extract_tb(e.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith((own, "<frozen"))]
    # The last line of their own, before NumPy or Python's library fails on what it was given.
    libraries = (os.path.dirname(os.__file__) + os.sep, f"{os.sep}site-packages{os.sep}numpy{os.sep}")
    nearest = [f for f in theirs if not any(part in f.filename for part in libraries)] or theirs
    return f"{text} ({nearest[-1].filename}:{nearest[-1].lineno})" if nearest else text


def _load_entry_points() -> None:
    if not any(map(_names_group, sys.path)):
        return
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        dist = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
        _providers[entry.module] = _providers[entry.module.partition(".")[0]] = dist
        try:
            importlib.import_module(entry.module)
        except Exception as e:
            failures[dist] = str(e) if isinstance(e, OpaliteError) else describe_fault(e)
            warnings.warn(
                f"the kernels of {dist}, {entry.value}, could not be imported and are left out: {failures[dist]}",
                stacklevel=2,
            )


def _names_group(folder: str) -> bool:
    """Whether a distribution in a folder of sys.path has entry points of the group.

    Its file is searched as bytes: importlib.metadata takes ten times as long, and each process pays for it.
    """
    try:
        with os.scandir(folder or ".") as found:
            paths = [e.path for e in found if e.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    for path in paths:
        with suppress(OSError), open(f"{path}/entry_points.txt", "rb") as f:
            if GROUP.encode() in f.read():
                return True
    return False
