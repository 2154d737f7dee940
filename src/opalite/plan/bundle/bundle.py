"""`.opal` bundles: compiled models that run without onnx and without a single pass.

A bundle is one file of tensors (safetensors_file.py): packed weights, each once however many programs hold it, and
program binaries. Its texts are JSON: `opalite` describes the model and its variants - the device that each was planned
for and its input shapes -, `program N` and `reports N` hold a variant's Program, kernel sources included, and what is
told of its nodes. The digest of `opalite` is a text of its own; `opalite` holds the digests of the other texts and the
sums of the tensors, so that nothing damaged gets to a driver.

That tells accidents. A Program of a bundle that nobody vouches for is not used: a tensor of bytes holds the graph that
it was emitted of (graph_record.py), of which a Rebuild has this version emit it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BundleError
from ...ir.constants.lazy_array import LazyArray
from ...ir.device.device_family import ADDRESSES, PTX_MMA, PTX_WGMMA
from ...ir.device.device_info import DeviceInfo
from ..control_flow import Flow
from ..program import Program
from ..template.program_template import Template
from .dispatch_key import DispatchKey

VERSION = 9
SUFFIX = ".opal"
TABLE = 64 << 20
"""Bytes of a table from which rows are picked that is mapped from the bundle."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GraphText:
    """A recorded graph as JSON-ready data, and the arrays that it numbers. keys: of these, where they come from a file,
    by identity."""

    data: Any
    arrays: Sequence[Array | LazyArray]
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
    array: Callable[[str, str, tuple[int, ...]], Array | LazyArray]


Content = Program | Template | Flow
"""What a variant holds."""

Rebuild = Callable[[Untrusted], Content]
"""Gives the content of a variant anew. BundleError, as the end of a sentence, where it cannot."""


class Variant:
    """One Program or Template: for one device, and one set of input shapes or all for which its guards hold.

    binaries: the driver's, by number of the source, for a device and driver of `fingerprint`. graph: what the program
    was emitted of. A variant of a file is decoded when its program is asked for.
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
        """What was compiled; BundleError if the file's is damaged."""
        if not isinstance(self._content, Program | Template | Flow):
            self._content = self._content()
        return self._content

    @property
    def template(self) -> Template | None:
        """The template, if sizes of its inputs are open."""
        return self.content if isinstance(self.content, Template) else None

    @property
    def stored(self) -> Program:
        """The program, or what the template's programs share: sources, weights, steps. Of a flow the first one."""
        return programs_of(self.content)[0]

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
        if not isinstance(content, Template):
            return self.stored
        program = content.at(content.sizes)
        assert program is not None
        return program


def programs_of(content: Content) -> tuple[Program, ...]:
    """The programs that are stored: one, or those of a flow."""
    if isinstance(content, Flow):
        return content.programs
    return (content.program if isinstance(content, Template) else content,)


def with_programs(content: Content, programs: Sequence[Program]) -> Content:
    """The same with other programs in the places of those that are stored."""
    if isinstance(content, Flow):
        return dataclasses.replace(content, programs=tuple(programs))
    return dataclasses.replace(content, program=programs[0]) if isinstance(content, Template) else programs[0]


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


def is_bundle(source: Any) -> bool:
    """Whether `source` names an .opal file."""
    return isinstance(source, (str, os.PathLike)) and Path(source).suffix == SUFFIX


def text_digest(text: str) -> str:
    """What tells whether a text of a bundle is whole."""
    return hashlib.sha256(text.encode()).hexdigest()
