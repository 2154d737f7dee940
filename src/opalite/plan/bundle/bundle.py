"""`.opal` bundles: compiled models that run without onnx and without any pass.

A bundle is one tensor file (safetensors_file.py) with packed weights, each stored once, and program binaries. Its texts
are JSON: `opalite` describes the model and its variants (device and input shapes), `program N` and `reports N` hold a
variant's Program, kernel sources included, and its node reports. The digest of `opalite` is a text of its own;
`opalite` holds the digests of the other texts and the checksums of the tensors, so that damage is found before a driver
sees it.

Checksums find accidents, not attacks. A Program of an untrusted bundle is not used: the bundle records the graph
(graph_record.py), from which a Rebuild emits the Program again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...errors import BundleError
from ...ir.constants.lazy_array import Array, LazyArray
from ...ir.device.device_family import ADDRESSES, PTX_MMA, PTX_WGMMA
from ...ir.device.device_info import DeviceInfo
from ...lazy_dataclass import dataclass
from ..control_flow import Flow
from ..program import Program
from ..template.program_template import Template
from .dispatch_key import DispatchKey

VERSION = 10
SUFFIX = ".opal"
TABLE = 64 << 20
"""Least bytes of a gather-only table that is memory-mapped from the bundle."""


@dataclass(frozen=True)
class GraphText:
    """A recorded graph as JSON-ready data, and the arrays that it numbers.

    keys: content keys of the arrays from a file, by identity.
    """

    data: Any
    arrays: Sequence[Array | LazyArray]
    keys: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Untrusted:
    """A variant of an untrusted file.

    digest: of the file's texts. number: of the variant. graph_key: content key of the bytes that `graph` decodes, ''
    without a record. array: loads an array by key, dtype and shape.
    """

    digest: str
    number: int
    device: DeviceInfo
    graph_key: str
    graph: Callable[[], GraphText]
    array: Callable[[str, str, tuple[int, ...]], Array | LazyArray]


Content = Program | Template | Flow
"""Contents of a variant."""

Rebuild = Callable[[Untrusted], Content]
"""Emits the content of a variant again. BundleError, worded as the end of a sentence, if it cannot."""


class Variant:
    """One compiled content for one device: for one set of input shapes, or for all that satisfy its guards.

    binaries: program binaries by number of the source, for the device and driver of `fingerprint`. graph: the recorded
    graph. A variant in a file is decoded on first use.
    """

    def __init__(
        self,
        device: DeviceInfo,
        program: Content | Callable[[], Content],
        *,
        needs: DispatchKey | None = None,
        binaries: Mapping[int, Callable[[], bytes]] | None = None,
        fingerprint: str = "",
        graph: Callable[[], GraphText] | None = None,
    ) -> None:
        self.device = device
        self.graph = graph
        self._content = program
        self.needs = needs if needs is not None else DispatchKey.of(self.program)
        self.binaries = dict(binaries or {})
        self.fingerprint = fingerprint

    @property
    def content(self) -> Content:
        """The compiled content; BundleError if the file is damaged."""
        if not isinstance(self._content, Program | Template | Flow):
            self._content = self._content()
        return self._content

    @property
    def template(self) -> Template | None:
        """The template, if sizes of its inputs are open."""
        return self.content if isinstance(self.content, Template) else None

    @property
    def stored(self) -> Program:
        """The program, or a template's shared program (sources, weights, steps); of a flow the first one."""
        return programs_of(self.content)[0]

    def failing(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """The reason why the template does not serve `shapes`, as the end of a sentence; '' if no guard fails."""
        sizes, template = self.needs.sizes_of(shapes), self.template
        if sizes is None or template is None:
            return ""
        guards = template.failing(sizes)
        if not guards:
            return ""
        node = f" (at {guards[0].node})" if guards[0].node else ""
        return f", for which {guards[0].text} does not hold{node}"

    def sizes_for(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
        """The open sizes for inputs of `shapes`, () for a program; None if the variant does not serve these shapes."""
        sizes = self.needs.sizes_of(shapes)
        if sizes is None or self.needs.sizes is None:
            return sizes
        return sizes if self.template is not None and self.template.holds(sizes) else None

    @property
    def program(self) -> Program:
        """The program; for a template, the program for the sizes of tracing."""
        content = self.content
        if not isinstance(content, Template):
            return self.stored
        program = content.at(content.sizes)
        assert program is not None
        return program


def programs_of(content: Content) -> tuple[Program, ...]:
    """The stored programs: a single program, or all programs of a flow."""
    if isinstance(content, Flow):
        return content.programs
    return (content.program if isinstance(content, Template) else content,)


def with_programs(content: Content, programs: Sequence[Program]) -> Content:
    """The content with its stored programs replaced."""
    if isinstance(content, Flow):
        return dataclasses.replace(content, programs=tuple(programs))
    return dataclasses.replace(content, program=programs[0]) if isinstance(content, Template) else programs[0]


class NotServedError(BundleError):
    """A bundle has no program for a device or for shapes."""


@dataclass
class Bundle:
    """Contents of an .opal file: variants, and metadata of the model for the session (`meta`, plain JSON).

    digest: of the whole file, if the bundle was read.
    """

    variants: list[Variant] = field(repr=False)  # programs with sources and weights
    meta: dict[str, Any]
    digest: str = ""

    def find(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Variant:
        """The variant for `device` and input `shapes`; BundleError lists the existing variants."""
        return self.find_at(device, shapes)[0]

    def find_at(
        self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[Variant, tuple[int, ...]]:
        """(the variant for `device` and input `shapes`, its open sizes); BundleError as `find`."""
        fitting = [v for v in self.variants if not misfit(v, device)]
        if not fitting:
            reasons = {v.device.title: misfit(v, device) for v in self.variants}
            planned = "; ".join(f"{name}: {why}" for name, why in sorted(reasons.items()))
            raise NotServedError(
                f"the bundle was not compiled for {device.title} but for other devices ({planned}); "
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


def misfit(variant: Variant, device: DeviceInfo) -> str:
    """The reason why the variant's programs do not run on `device`, '' if they do.

    Core count and memory size, which differ between machines with one CPU model, do not matter.
    """
    planned = variant.device
    there = plan_key(device)
    for name, then in plan_key(planned).items():
        if then != there[name]:
            return f"{name} {then!r} was planned for, {there[name]!r} is here"
    if variant.needs.byte_dots and planned.byte_dots != device.byte_dots:
        return f"byte_dots {planned.byte_dots!r} were planned for, {device.byte_dots!r} are here"
    texels = ("image_buffer_max",) if planned.prefers_images else ()
    for name in ("local_mem", "max_work_group_size", *texels):
        most, here = getattr(planned, name), getattr(device, name)
        if most > here:
            return f"{name} up to {most} was planned for, {here} is here"
    for width, height in variant.needs.images:
        if not device.fits_image(width, height):
            return f"images of {width}x{height} texels were planned for"
    return ""


def plan_key(device: DeviceInfo) -> dict[str, Any]:
    """Properties of a device that programs depend on, by name: those of equal ones run on both, within their limits."""
    names = ("kind", "family", "pack", "fp16", "half_functions", "half_sums", "dot_product", "fp64", "image_support")
    found = {name: getattr(device, name) for name in (*names, "base_align")}
    return found | {quirk: quirk in device.quirks for quirk in (PTX_MMA, PTX_WGMMA, ADDRESSES)}


def is_bundle(source: Any) -> bool:
    """Whether `source` is the path of an .opal file."""
    return isinstance(source, (str, os.PathLike)) and Path(source).suffix == SUFFIX


def text_digest(text: str) -> str:
    """Digest of a bundle's text."""
    return hashlib.sha256(text.encode()).hexdigest()
