"""`import onnxruntime` gives Opalite, for packages that import onnxruntime themselves.

`opalite.install_as_onnxruntime()` does so in this process, `python -m opalite.onnxruntime SCRIPT` for a script and the
processes that it starts. Modules and classes are those of `opalite`, imported once. Submodules that Opalite does not
have, such as `onnxruntime.quantization`, come from the installed package onnxruntime, and use Opalite's sessions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import knobs
from ..errors import OptionError

NAME = "onnxruntime"
EMULATED_VERSION = "1.32.0"
"""The version of onnxruntime whose API Opalite follows, where no onnxruntime is installed."""
_OWN = {
    f"{NAME}.backend": "opalite.backend",
    f"{NAME}.capi": "opalite.capi",
    f"{NAME}.capi._pybind_state": "opalite.capi._pybind_state",
    f"{NAME}.capi.onnxruntime_inference_collection": "opalite.capi.onnxruntime_inference_collection",
    f"{NAME}.capi.onnxruntime_pybind11_state": "opalite.capi.onnxruntime_pybind11_state",
}
"""Modules of onnxruntime that are modules of Opalite."""
_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-qnn")
_EXTENSION = "onnxruntime_pybind11_state"


def install(device: str | None = None) -> None:
    """Have `import onnxruntime` give Opalite in this process and in those that it starts by `python -m`.

    device: of sessions that name none, also where a package passes CPUExecutionProvider; as OPALITE_DEVICE.
    Raises OptionError if onnxruntime itself has been imported: its importers would keep it.
    """
    if NAME in sys.modules and not is_installed():
        raise OptionError(
            "onnxruntime has been imported already, and its importers keep it: call opalite.install_as_onnxruntime() "
            "before anything imports onnxruntime"
        )
    knobs.override("OPALITE_AS_ONNXRUNTIME", "1")
    if device is not None:
        knobs.override("OPALITE_DEVICE", device)
    if not is_installed():
        sys.meta_path.insert(0, _Finder())


def is_installed() -> bool:
    """Whether `import onnxruntime` gives Opalite."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


class _Finder(MetaPathFinder):
    """Finds onnxruntime and its modules: Opalite's own, else those of the installed package."""

    @cached_property
    def _folders(self) -> list[str]:
        """Folders of the installed package."""
        found = PathFinder.find_spec(NAME)
        return list(found.submodule_search_locations or ()) if found is not None else []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module, as importlib asks for it; None for modules that are not onnxruntime's."""
        if fullname == NAME:
            spec = ModuleSpec(NAME, _PackageLoader(self._folders), origin=__file__, is_package=True)
            spec.submodule_search_locations = self._folders
            return spec
        if not fullname.startswith(f"{NAME}."):
            return None
        if fullname in _OWN:
            return ModuleSpec(fullname, _AliasLoader(_OWN[fullname], self._folders))
        folders = [str(Path(folder, *fullname.split(".")[1:-1])) for folder in self._folders]
        return PathFinder.find_spec(fullname, folders)


class _PackageLoader(Loader):
    """Makes the module `onnxruntime`, whose attributes are those of `opalite`."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: importlib makes an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module."""
        import opalite

        version = _version()
        vars(module).update(
            __doc__="onnxruntime's API, by Opalite.",
            __all__=[name for name in opalite.__all__ if not name.startswith("__")],
            __version__=version,
            version=version,
            package_name=NAME,
            get_version_string=lambda: version,
            __getattr__=lambda name: _attribute(name, self._folders),
        )


class _AliasLoader(Loader):
    """Gives a module of Opalite a second name. Attributes that it lacks are those of onnxruntime's compiled module."""

    def __init__(self, own: str, folders: Sequence[str]) -> None:
        self._own, self._folders = own, folders
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of Opalite."""
        module = import_module(self._own)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what importlib has changed."""
        module.__spec__ = self._spec
        if self._own.endswith("_state"):
            own: Callable[[str], Any] | None = vars(module).get("__getattr__")
            vars(module)["__getattr__"] = lambda name: _own_or_compiled(name, own, module, self._folders)


def _attribute(name: str, folders: Sequence[str]) -> Any:
    """An attribute of the module `onnxruntime`: Opalite's."""
    import opalite

    if name in ("backend", "capi"):
        return import_module(f"{NAME}.{name}")
    try:
        if name.startswith("__") or name not in opalite.__all__:
            raise AttributeError
        return getattr(opalite, name)
    except AttributeError:
        hint = "" if folders else "; submodules of onnxruntime need the package onnxruntime beside Opalite"
        raise AttributeError(f"module '{NAME}' has no attribute {name!r} in Opalite{hint}") from None


def _own_or_compiled(name: str, own: Callable[[str], Any] | None, module: ModuleType, folders: Sequence[str]) -> Any:
    """An attribute of a module of Opalite, else of onnxruntime's compiled module, such as quantize_matmul_4bits."""
    if own is not None:
        try:
            return own(name)
        except AttributeError:
            pass
    compiled = None if name.startswith("__") else _compiled_module(folders)
    if compiled is None or not hasattr(compiled, name):
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return getattr(compiled, name)


def _compiled_module(folders: Sequence[str]) -> ModuleType | None:
    """onnxruntime's compiled module, under a name of its own; None if onnxruntime is not installed."""
    full_name = f"{__name__}.{_EXTENSION}"  # the last part names the function that initialises it
    found = sys.modules.get(full_name)
    files = [Path(folder, "capi", _EXTENSION + suffix) for folder in folders for suffix in EXTENSION_SUFFIXES]
    file = next((f for f in files if f.is_file()), None)
    if found is None and file is not None:
        spec = spec_from_file_location(full_name, file)
        assert spec is not None
        assert spec.loader is not None
        found = module_from_spec(spec)
        spec.loader.exec_module(found)
        sys.modules[full_name] = found
    return found


def _version() -> str:
    """The version of the installed onnxruntime, which packages compare with the one they need."""
    from importlib import metadata  # takes as long as the rest: every process with the sitecustomize starts this module

    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return EMULATED_VERSION
