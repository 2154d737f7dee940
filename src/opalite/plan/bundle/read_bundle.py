"""Bundle reader: each variant is decoded, or emitted again, when it is used."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BundleError, ModelFormatError
from ...ir.constants.lazy_array import Array, LazyArray, content_key, mapped_part
from ...ir.constants.model_file import FilePart, ModelFile
from ...ir.device.device_info import DeviceInfo
from ...ir.plugins import foreign_providers
from ...lazy_dataclass import dataclass
from ..program import LazyList
from ..template.program_template import Template
from ..weights.safetensors_file import TensorFile, TensorFileError
from ..weights.weight_files import WeightFiles, byte_sum
from .bundle import TABLE, VERSION, Bundle, Content, GraphText, Rebuild, Untrusted, Variant, programs_of, text_digest
from .dispatch_key import DispatchKey
from .json_codec import decode

_INVALID = (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError)
"""Errors of decoding invalid data."""


def load_bundle(
    path: str | os.PathLike[str], apart: WeightFiles | None = None, rebuild: Rebuild | None = None
) -> Bundle:
    """The bundle at `path`; weights are read with their program. BundleError for an invalid or foreign file.

    apart: the folder of large weights, which become LazyArrays. rebuild: emits the programs of untrusted files; without
    it the file's own programs are used.
    """
    where = Path(path)
    if not where.is_file():
        what = "is a folder" if where.is_dir() else "does not exist"
        raise BundleError(f"bundle '{where}' {what}; `opalite compile` makes one of a model")
    try:
        file = TensorFile(where)
        text = file.texts.get("opalite")
        if text is None:
            raise BundleError(f"'{where}' is a safetensors file, but not an Opalite bundle")
        # From here on sizes and kernels are used unchecked: a damaged one could crash the driver.
        if file.texts.get("digest") != text_digest(text):
            raise _damaged(where)
        about = json.loads(text)
        if about["version"] != VERSION:
            found = about["version"]
            raise BundleError(f"'{where}' has bundle version {found}, this opalite reads {VERSION}; compile it again")
        reader = _Reader(where, file, about, apart, rebuild, text_digest(text))
        variants = [reader.variant(n, raw) for n, raw in enumerate(about["variants"])]
        return Bundle(variants, about["meta"], text_digest(text))
    except (TensorFileError, OSError, *_INVALID) as e:
        raise BundleError(f"'{where}' is not a complete .opal bundle ({e}); compile the model again") from e


@dataclass(frozen=True)
class _Reader:
    """Reader of the checked parts of one bundle."""

    where: Path
    file: TensorFile
    about: Mapping[str, Any]
    apart: WeightFiles | None
    rebuild: Rebuild | None
    digest: str

    def variant(self, n: int, raw: Mapping[str, Any]) -> Variant:
        """Variant number `n`, decoded on use."""
        binaries = {int(i): self._binary(str(key)) for i, key in raw["binaries"].items()}
        shapes = {name: tuple(map(int, shape)) for name, shape in raw["shapes"].items()}
        device = DeviceInfo.from_json(raw["device"])
        sizes: dict[str, tuple[int | None, ...]] | None = None
        if raw["sizes"] is not None:
            sizes = {n: tuple(None if a is None else int(a) for a in axes) for n, axes in raw["sizes"].items()}
        if sizes is not None and any(len(axes) != len(shapes[name]) for name, axes in sizes.items()):
            raise _damaged(self.where)
        return Variant(
            device,
            lambda: self._program(n, raw, device),
            needs=DispatchKey(shapes, [(int(w), int(h)) for w, h in raw["images"]], sizes, bool(raw["byte_dots"])),
            binaries=binaries,
            fingerprint=str(raw["fingerprint"]),
            graph=None if raw["graph"] is None else lambda: self._graph(raw["graph"], raw["picked"]),
        )

    def _graph(self, raw: Mapping[str, Any], picked: Collection[str]) -> GraphText:
        """The recorded graph; its bytes must match its content key: checksums of an untrusted file prove nothing."""
        text = self._checked(raw["key"])
        if content_key(text) != raw["key"]:
            raise _damaged(self.where)
        arrays, keys = self._arrays(raw["arrays"], picked)
        return GraphText(json.loads(text.tobytes()), arrays, keys)

    def _arrays(self, kinds: Sequence[Any], picked: Collection[str] = ()) -> tuple[list[Any], dict[int, str]]:
        """Arrays by number, and the key of each by identity."""
        arrays = [self._array(key, _dtype(kind), tuple(shape), key in picked) for kind, shape, key in kinds]
        return arrays, {id(a): key for a, (_, _, key) in zip(arrays, kinds, strict=True)}

    def _program(self, n: int, raw: Mapping[str, Any], device: DeviceInfo) -> Content:
        try:
            content = self._decoded(n, raw) if self.rebuild is None else self.rebuild(self._untrusted(n, raw, device))
        except (BundleError, *_INVALID) as e:
            if missing := self._missing_plugins():
                raise BundleError(missing) from e
            if not isinstance(e, BundleError):
                raise BundleError(
                    f"'{self.where}' was written by another opalite ({e}); compile the model again"
                ) from e
            if self.rebuild is None:
                raise
            raise BundleError(
                f"'{self.where}' is not trusted, and this opalite cannot make its programs again: {e}. Compile the "
                "model again, or pass trust=True if you know who made the file"
            ) from e
        for i, program in enumerate(programs_of(content)):
            program.placement = LazyList(partial(self._reports, n, i))
        return content

    def _missing_plugins(self) -> str:
        """A sentence on the operators and kernels of other packages that the bundle uses and this process lacks."""
        wanted = self.about["meta"].get("plugins") or {}
        if not wanted or not (missing := wanted.keys() - foreign_providers().keys()):
            return ""
        sources = ", ".join(sorted({str(wanted[name]) for name in missing}))
        text = (
            f"'{self.where}' uses {', '.join(sorted(missing))}, which {sources} registers: install or import that, or "
            "name its file by --kernels or OPALITE_KERNELS"
        )
        if self.rebuild is None:
            return text
        return f"{text}; or pass trust=True if you know who made the file, which holds the kernels' OpenCL source"

    def _decoded(self, n: int, raw: Mapping[str, Any]) -> Content:
        arrays, keys = self._arrays(raw["arrays"], frozenset(raw["picked"]))
        content: Content = decode(self._json(f"program {n}"), arrays)
        if isinstance(content, Template):
            content.compile()
        for program in programs_of(content):
            program.weight_keys = {slot: keys[id(a)] for slot, a in program.weights.items()}
        return content

    def _untrusted(self, n: int, raw: Mapping[str, Any], device: DeviceInfo) -> Untrusted:
        graph = raw["graph"]
        return Untrusted(
            self.digest,
            n,
            device,
            "" if graph is None else str(graph["key"]),
            lambda: self._graph(graph, raw["picked"]),
            lambda key, kind, shape: self._array(key, _dtype(kind), shape, key in raw["picked"]),
        )

    def _reports(self, n: int, program: int) -> Any:
        try:
            return decode(self._json(f"reports {n}"), ())[program]
        except _INVALID as e:
            raise BundleError(f"'{self.where}' has no readable node reports ({e}); compile the model again") from e

    def _json(self, name: str) -> Any:
        text = self.file.texts.get(name, "")
        if self.about["digests"].get(name) != text_digest(text):
            raise _damaged(self.where)
        return json.loads(text)

    def _array(self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...], picked: bool) -> Array | LazyArray:
        if self.apart is not None and key in self.about["files"]:
            return self._mapped(key, dtype, shape)
        if picked and os.name == "posix" and self.file.nbytes(key) >= TABLE:
            # A mapped table is not checksummed, so that its key is unique to this file.
            return mapped_part(dtype, shape, f"{self.digest}:{key}", lambda: self.file.map(key))
        if self.apart is None or self.file.has(key):
            return self._checked(key).view(dtype).reshape(shape)
        try:
            return self.apart.find(key, dtype, shape, self.about["sums"][key], picked=picked)
        except BundleError as e:
            raise BundleError(f"'{self.where}' is not whole: {e}") from e

    def _mapped(self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> LazyArray:
        """A table mapped from the model's file; BundleError if the file has changed or cannot be read."""
        path, offset = self.about["files"][key]
        try:
            found = FilePart(ModelFile(Path(path)), offset, math.prod(shape) * dtype.itemsize).mapped(dtype, shape)
        except (OSError, ModelFormatError) as e:
            raise BundleError(f"'{self.where}' is not whole: '{path}' cannot be read ({e})") from e
        if found.contents.digest != key:
            raise BundleError(f"'{self.where}' is not whole: '{path}' has changed")
        return found

    def _checked(self, key: str) -> Array:
        try:
            raw = self.file.get(key)
        except (KeyError, ValueError, OSError) as e:
            raise _damaged(self.where) from e
        if self.about["sums"].get(key) != byte_sum(raw):
            raise _damaged(self.where)
        return raw

    def _binary(self, key: str) -> Callable[[], bytes]:
        return lambda: self._checked(key).tobytes()


def _damaged(where: Path) -> BundleError:
    return BundleError(f"'{where}' is damaged; compile the model again")


def _dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
