"""`.opal` bundles: compiled models that run without onnx and without a single pass.

A bundle is one file of tensors (tensor_file.py): packed weights, each once however many programs hold it, and program
binaries. Its texts are JSON: `opalite` describes the model and its variants - the device that each was planned for and
its input shapes -, `program N` and `reports N` hold a variant's Program, kernel sources included, and what is told of
its nodes. The digest of `opalite` is a text of its own; `opalite` holds the digests of the other texts and the sums of
the tensors, so that nothing damaged gets to a driver.

That tells accidents. A Program of a bundle that nobody vouches for is not used: a tensor of bytes holds the graph that
it was emitted of (graph_record.py), of which a Rebuild has this version emit it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BundleError
from ..ir.content import Contents, content_key
from ..ir.device import DeviceInfo
from ..ir.device_family import ADDRESSES, PTX_MMA, PTX_WGMMA
from ..ir.stored import StoredArray
from .codec import Encoder, decode
from .lazy import LazyList
from .needs import Needs
from .picked import picked_slots
from .program import Program
from .sums import byte_sum
from .template import Template
from .tensor_file import TensorFile, TensorFileError, write_tensors
from .weight_files import APART, WeightFiles

VERSION = 9
SUFFIX = ".opal"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GraphText:
    """A recorded graph as JSON-ready data, and the arrays that it numbers. keys: of these, where they come from a file,
    by identity."""

    data: Any
    arrays: Sequence[Array | StoredArray]
    keys: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Untrusted:
    """A variant of a file, for whom does not trust its program.

    digest: of the file's texts. number: of the variant. graph_key: of the bytes that `graph` decodes, '' if it records
    none. array: the array of a key, of a type and shape.
    """

    digest: str
    number: int
    device: DeviceInfo
    graph_key: str
    graph: Callable[[], GraphText]
    array: Callable[[str, str, tuple[int, ...]], Array]


Rebuild = Callable[[Untrusted], "Program | Template"]
"""Gives the content of a variant anew. BundleError, as the end of a sentence, where it cannot."""


class Variant:
    """One Program or Template: for one device, and one set of input shapes or all for which its guards hold.

    binaries: the driver's, by number of the source, for a device and driver of `fingerprint`. graph: what the program
    was emitted of. A variant of a file is decoded when its program is asked for.
    """

    def __init__(
        self,
        device: DeviceInfo,
        program: Program | Template | Callable[[], Program | Template],
        *,
        needs: Needs | None = None,
        binaries: Mapping[int, Callable[[], bytes]] | None = None,
        fingerprint: str = "",
        graph: Callable[[], GraphText] | None = None,
    ) -> None:
        self.device = device
        self.graph = graph
        self._content = program
        self.needs = needs if needs is not None else Needs.of(self.program)
        self.binaries = dict(binaries or {})
        self.fingerprint = fingerprint

    @property
    def content(self) -> Program | Template:
        """What was compiled; BundleError if the file's is damaged."""
        if not isinstance(self._content, Program | Template):
            self._content = self._content()
        return self._content

    @property
    def template(self) -> Template | None:
        """The template, if sizes of its inputs are open."""
        return self.content if isinstance(self.content, Template) else None

    @property
    def stored(self) -> Program:
        """The program, or what the template's programs share: sources, weights, steps."""
        return self.content.program if isinstance(self.content, Template) else self.content

    def failing(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Why the template does not serve `shapes`, as the end of a sentence; '' where no guard fails."""
        sizes, template = self.needs.sizes_of(shapes), self.template
        if sizes is None or template is None:
            return ""
        guards = template.failing(sizes)
        if not guards:
            return ""
        node = f" (at {guards[0].node})" if guards[0].node else ""
        return f", for which {guards[0].text} does not hold{node}"

    def sizes_for(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
        """The sizes for inputs of `shapes`, none of a program; None if this serves others."""
        sizes = self.needs.sizes_of(shapes)
        if sizes is None or self.needs.sizes is None:
            return sizes
        return sizes if self.template is not None and self.template.holds(sizes) else None

    @property
    def program(self) -> Program:
        """The program; of a template, that for the sizes it was traced with."""
        content = self.content
        if isinstance(content, Program):
            return content
        program = content.at(content.sizes)
        assert program is not None
        return program


class NotServedError(BundleError):
    """A bundle has nothing for a device, or for shapes."""


@dataclass
class Bundle:
    """What an .opal file holds: variants and what the session tells about the model (`meta`, plain JSON).

    digest: of the whole contents, for one that was read.
    """

    variants: list[Variant] = field(repr=False)  # programs with sources and weights
    meta: dict[str, Any]
    digest: str = ""

    def find(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Variant:
        """The variant for `device` and input `shapes`; BundleError says which there are."""
        return self.find_at(device, shapes)[0]

    def find_at(
        self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[Variant, tuple[int, ...]]:
        """The variant for `device` and input `shapes`, and its sizes for them; BundleError as `find`."""
        fitting = [v for v in self.variants if plan_key(v.device) == plan_key(device) and _is_within(v, device)]
        if not fitting:
            names = ", ".join(sorted({v.device.name for v in self.variants}))
            raise NotServedError(
                f"the bundle was compiled for {names}, not for {device.name}; "
                f"compile it again with --device, or run the .onnx file"
            )
        if shapes is None:
            return fitting[0], ()
        for v in fitting:
            sizes = v.sizes_for(shapes)
            if sizes is not None:
                return v, sizes
        came = ", ".join(f"{k}:{'x'.join(map(str, s))}" for k, s in shapes.items())
        known = "; ".join(v.needs.describe() for v in fitting)
        failing = next((f for v in fitting if (f := v.failing(shapes))), "")
        raise NotServedError(
            f"the bundle was compiled for shapes {known}; got {came}{failing}; compile it with --shape for these"
        )


def _is_within(variant: Variant, device: DeviceInfo) -> bool:
    """Whether the variant's program keeps to the limits of `device`, which differ within a family."""
    planned = variant.device
    fits = planned.local_mem <= device.local_mem and planned.max_work_group_size <= device.max_work_group_size
    has_dots = not variant.needs.byte_dots or planned.byte_dots == device.byte_dots
    return fits and has_dots and all(device.fits_image(*size) for size in variant.needs.images)


def plan_key(device: DeviceInfo) -> tuple[Any, ...]:
    """What of a device a Program depends on: two with the same key, and large enough limits, run the same bundle.

    How many cores there are and how much memory, which differ between machines with one processor, is no part of it.
    """
    return (
        device.kind,
        device.family,
        device.pack,
        device.fp16,
        device.half_functions,
        device.half_sums,
        device.dot_product,
        PTX_MMA in device.quirks,
        PTX_WGMMA in device.quirks,
        device.fp64,
        device.image_support,
        device.base_align,
        ADDRESSES in device.quirks,
    )


def _lasting(device: DeviceInfo) -> DeviceInfo:
    """The device without what is another from process to process: the memory that a virtual machine has at the time."""
    return dataclasses.replace(device, global_mem=_NO.global_mem, max_alloc=_NO.max_alloc) if device.on_host else device


_NO = DeviceInfo()


def save_bundle(
    path: str | os.PathLike[str],
    bundle: Bundle,
    apart: WeightFiles | None = None,
    each: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map,
) -> None:
    """Write atomically: a reader sees the old file or the whole new one. The programs' `weight_keys` are filled in.

    apart: where large weights go, which the reader has to be given as well. each: computes digests of arrays and
    writes these files, perhaps side by side.
    """
    target = Path(path)
    tensors: dict[str, Array] = {}
    sums: dict[str, str] = {}
    texts: dict[str, str] = {}
    variants = []

    def examine(held: Array | StoredArray) -> tuple[Contents, Array | None]:
        """What it contains, and itself unless it lies apart now."""
        if held.dtype == object:
            raise BundleError("a program with string constants cannot be bundled; run the .onnx file")
        known = held.contents if isinstance(held, StoredArray) else Contents()
        is_apart = apart is not None and held.nbytes >= APART
        if known.checksum and is_apart and apart is not None and apart.has(known.digest, held.nbytes):
            return known, None
        array = held.read() if isinstance(held, StoredArray) else held
        known.digest = known.digest or content_key(array)
        known.checksum = known.checksum or byte_sum(np.ascontiguousarray(array))
        if apart is not None and is_apart:
            apart.keep(known.digest, array)
            return known, None
        return known, array

    def keep(arrays: Sequence[Array | StoredArray]) -> list[str]:
        found = list(each(examine, arrays))
        for known, array in found:
            sums[known.digest] = known.checksum
            if array is not None:
                tensors.setdefault(known.digest, array)
        return [known.digest for known, _ in found]

    def add(n: int, v: Variant) -> None:
        encoder = Encoder()
        content = v.content
        stored = content.program if isinstance(content, Template) else content
        bare = dataclasses.replace(stored, placement=())
        whole = dataclasses.replace(content, program=bare) if isinstance(content, Template) else bare
        texts[f"program {n}"] = json.dumps(encoder.encode(whole))
        texts[f"reports {n}"] = json.dumps(Encoder().encode(list(stored.placement)))
        keys = keep(encoder.arrays)
        binaries = [np.frombuffer(binary(), np.uint8) for binary in v.binaries.values()]
        by_array = {id(a): key for a, key in zip(encoder.arrays, keys, strict=True)}
        graph = None if v.graph is None else v.graph()
        recorded: dict[str, Any] | None = None
        if graph is not None:
            text = np.frombuffer(json.dumps(graph.data).encode(), np.uint8)
            recorded = {"key": keep([text])[0], "arrays": _kinds(graph.arrays, keep(graph.arrays))}
        stored.weight_keys = {slot: by_array[id(a)] for slot, a in stored.weights.items()}
        variants.append(
            {
                "device": _lasting(v.device).to_json(),
                "fingerprint": v.fingerprint,
                "shapes": v.needs.shapes,
                "images": v.needs.images,
                "sizes": v.needs.sizes,
                "byte_dots": v.needs.byte_dots,
                "arrays": _kinds(encoder.arrays, keys),
                "graph": recorded,
                "picked": sorted(stored.weight_keys[slot] for slot in picked_slots(stored)),
                "binaries": dict(zip(v.binaries, keep(binaries), strict=True)),
            }
        )

    try:
        for n, v in enumerate(bundle.variants):
            add(n, v)
    except OSError as e:
        raise BundleError(f"'{target}' could not be written: {e.strerror or e}") from e
    digests = {name: _digest(text) for name, text in texts.items()}
    about = {"version": VERSION, "meta": bundle.meta, "variants": variants, "digests": digests, "sums": sums}
    text = json.dumps(about)
    try:
        write_tensors(target, tensors, {"opalite": text, "digest": _digest(text), **texts})
    except OSError as e:
        raise BundleError(f"'{target}' could not be written: {e.strerror or e}") from e


def _kinds(arrays: Sequence[Array | StoredArray], keys: Sequence[str]) -> list[Any]:
    """Type, shape and key of each array."""
    return [[a.dtype.name, list(a.shape), key] for a, key in zip(arrays, keys, strict=True)]


def load_bundle(
    path: str | os.PathLike[str], apart: WeightFiles | None = None, rebuild: Rebuild | None = None
) -> Bundle:
    """The bundle at `path`, weights read when a program is. BundleError unless it is a whole bundle of this version.

    apart: where large weights lie, which then are StoredArrays. rebuild: gives programs in the place of the file's own,
    which are used where there is none.
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
        # Sizes and kernels are trusted from here on: a damaged one could crash the driver.
        if file.texts.get("digest") != _digest(text):
            raise _damaged(where)
        about = json.loads(text)
        if about["version"] != VERSION:
            found = about["version"]
            raise BundleError(f"'{where}' has bundle version {found}, this opalite reads {VERSION}; compile it again")
        reader = _Reader(where, file, about, apart, rebuild, _digest(text))
        return Bundle([reader.variant(n, raw) for n, raw in enumerate(about["variants"])], about["meta"], _digest(text))
    except (
        *(TensorFileError, OSError, KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError),
    ) as e:
        raise BundleError(f"'{where}' is not a complete .opal bundle ({e}); compile the model again") from e


class _Reader:
    """Reads and checks the parts of one bundle."""

    def __init__(
        self,
        where: Path,
        file: TensorFile,
        about: Mapping[str, Any],
        apart: WeightFiles | None,
        rebuild: Rebuild | None,
        digest: str,
    ) -> None:
        self._rebuild, self._digest = rebuild, digest
        self._where = where
        self._apart = apart
        self._file = file
        self._about = about

    def variant(self, n: int, raw: Mapping[str, Any]) -> Variant:
        """The variant number `n`, decoded when it is asked for."""
        binaries = {int(i): self._binary(str(key)) for i, key in raw["binaries"].items()}
        shapes = {name: tuple(map(int, shape)) for name, shape in raw["shapes"].items()}
        device = DeviceInfo.from_json(raw["device"])
        sizes = None if raw["sizes"] is None else {name: _axes(axes) for name, axes in raw["sizes"].items()}
        if sizes is not None and any(len(axes) != len(shapes[name]) for name, axes in sizes.items()):
            raise _damaged(self._where)
        return Variant(
            device,
            lambda: self._program(n, raw, device),
            needs=Needs(
                shapes,
                [(int(w), int(h)) for w, h in raw["images"]],
                sizes,
                bool(raw["byte_dots"]),
            ),
            binaries=binaries,
            fingerprint=str(raw["fingerprint"]),
            graph=None if raw["graph"] is None else lambda: self._graph(raw["graph"]),
        )

    def _graph(self, raw: Mapping[str, Any]) -> GraphText:
        """The recorded graph, whose bytes have to be those that its key names, as nobody vouches for their sum."""
        text = self._checked(raw["key"])
        if content_key(text) != raw["key"]:
            raise _damaged(self._where)
        arrays, keys = self._arrays(raw["arrays"])
        return GraphText(json.loads(text.tobytes()), arrays, keys)

    def _arrays(self, kinds: Sequence[Any], picked: Collection[str] = ()) -> tuple[list[Any], dict[int, str]]:
        """Arrays by number, and the key of each by identity."""
        arrays = [self._array(key, _dtype(kind), tuple(shape), key in picked) for kind, shape, key in kinds]
        return arrays, {id(a): key for a, (_, _, key) in zip(arrays, kinds, strict=True)}

    def _program(self, n: int, raw: Mapping[str, Any], device: DeviceInfo) -> Program | Template:
        if self._rebuild is not None:
            return self._rebuilt(self._rebuild, n, raw, device)
        try:
            arrays, keys = self._arrays(raw["arrays"], frozenset(raw.get("picked", ())))
            content: Program | Template = decode(self._json(f"program {n}"), arrays)
            if isinstance(content, Template):
                content.compile()
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as e:
            raise BundleError(f"'{self._where}' was written by another opalite ({e}); compile the model again") from e
        program = content.program if isinstance(content, Template) else content
        program.weight_keys = {slot: keys[id(a)] for slot, a in program.weights.items()}
        program.placement = LazyList(lambda: self._reports(n))
        return content

    def _rebuilt(self, rebuild: Rebuild, n: int, raw: Mapping[str, Any], device: DeviceInfo) -> Program | Template:
        try:
            graph = raw["graph"]
            untrusted = Untrusted(
                self._digest,
                n,
                device,
                "" if graph is None else str(graph["key"]),
                lambda: self._graph(graph),
                lambda key, kind, shape: self._checked(key).view(_dtype(kind)).reshape(shape),
            )
            content = rebuild(untrusted)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as e:
            raise BundleError(f"'{self._where}' was written by another opalite ({e}); compile the model again") from e
        except BundleError as e:
            raise BundleError(
                f"'{self._where}' is not trusted, and this opalite cannot make its programs again: {e}. Compile the "
                "model again, or pass trust=True if you know who made the file"
            ) from e
        program = content.program if isinstance(content, Template) else content
        program.placement = LazyList(lambda: self._reports(n))
        return content

    def _reports(self, n: int) -> Any:
        try:
            return decode(self._json(f"reports {n}"), ())
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as e:
            raise BundleError(f"'{self._where}' does not tell of its nodes ({e}); compile the model again") from e

    def _json(self, name: str) -> Any:
        text = self._file.texts.get(name, "")
        if self._about["digests"].get(name) != _digest(text):
            raise _damaged(self._where)
        return json.loads(text)

    def _array(self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...], picked: bool) -> Array | StoredArray:
        if self._apart is None or self._file.has(key):
            return self._checked(key).view(dtype).reshape(shape)
        try:
            return self._apart.find(key, dtype, shape, self._about["sums"][key], picked=picked)
        except BundleError as e:
            raise BundleError(f"'{self._where}' is not whole: {e}") from e

    def _checked(self, key: str) -> Array:
        try:
            raw = self._file.get(key)
        except (KeyError, ValueError, OSError) as e:
            raise _damaged(self._where) from e
        if self._about["sums"].get(key) != byte_sum(raw):
            raise _damaged(self._where)
        return raw

    def _binary(self, key: str) -> Callable[[], bytes]:
        return lambda: self._checked(key).tobytes()


def _axes(axes: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(None if axis is None else int(axis) for axis in axes)


def _damaged(where: Path) -> BundleError:
    return BundleError(f"'{where}' is damaged; compile the model again")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def is_bundle(source: Any) -> bool:
    """Whether `source` names an .opal file."""
    return isinstance(source, (str, os.PathLike)) and Path(source).suffix == SUFFIX
