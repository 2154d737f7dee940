"""DispatchKey: what the choice among a bundle's programs depends on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..program import Program

_BYTE_DOTS = re.compile(r"-DDOTS=[12]\b")
"""The option of sources whose instructions not every processor of a family has
(kernels/quantized/dot_low_bit_int8.cl)."""


@dataclass(frozen=True)
class DispatchKey:
    """What the choice among programs depends on: shapes of inputs by name, sizes of images in texels, and whether
    sums of products of bytes have to be those of the device that was planned for (`DeviceInfo.byte_dots`).

    shapes: also of inputs that the program does not read, for its own sizes may come from them (`Shape`). sizes: of a
    template, which of its sizes each axis is, None for one that is as in `shapes`.
    """

    shapes: Mapping[str, tuple[int, ...]]
    images: Sequence[tuple[int, int]] = ()
    sizes: Mapping[str, tuple[int | None, ...]] | None = None
    byte_dots: bool = False

    @classmethod
    def of(
        cls,
        program: Program,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        sizes: Mapping[str, tuple[int | None, ...]] | None = None,
    ) -> DispatchKey:
        """The needs of `program` of a model whose inputs have these `shapes`; left out: those that it reads."""
        texels = [(w, h) for w, h, _ in program.image_pool]
        texels += [s.image for s in program.slots if s.image is not None]
        read = {i.name: i.shape for i in program.inputs}
        dots = any(_BYTE_DOTS.search(source.options) for source in program.sources)
        return cls(read if shapes is None else {**shapes, **read}, sorted(set(texels)), sizes, dots)

    @classmethod
    def of_all(cls, programs: Sequence[Program], shapes: Mapping[str, tuple[int, ...]]) -> DispatchKey:
        """The needs of the programs of a flow, of a model whose inputs have these `shapes`."""
        parts = [cls.of(program, {}) for program in programs]
        return cls(shapes, sorted({i for p in parts for i in p.images}), None, any(p.byte_dots for p in parts))

    def sizes_of(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
        """The sizes that inputs of `shapes` have: none where there is no template; None if an axis has to be other.

        Inputs that are not named here count for nothing, and those that do not come are as they were.
        """
        open_axes = self.sizes or {}
        found: dict[int, int] = {}
        for name, planned in self.shapes.items():
            came = tuple(shapes.get(name, planned))
            if len(came) != len(planned):
                return None
            numbers = open_axes.get(name) or (None,) * len(came)
            for size, wanted, number in zip(came, planned, numbers, strict=True):
                if size != (wanted if number is None else found.setdefault(number, size)):
                    return None
        return tuple(found[n] for n in sorted(found))

    def describe(self) -> str:
        """The shapes, as `opalite compile` takes them, with s0, s1, ... for sizes that are open."""
        names = self.sizes or {}
        return ", ".join(
            f"{name}:{'x'.join(_axis(*pair) for pair in zip(s, names.get(name) or (None,) * len(s), strict=True))}"
            for name, s in self.shapes.items()
        )


def _axis(size: int, number: int | None) -> str:
    return str(size) if number is None else f"s{number}"
