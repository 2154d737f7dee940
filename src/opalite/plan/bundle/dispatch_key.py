"""DispatchKey: the facts by which a bundle's programs are selected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...lazy_dataclass import dataclass
from ..program import Program

_BYTE_DOTS = r"-DDOTS=[12]\b"
"""Option of sources with instructions that not every CPU of a family has (quantized/dot_low_bit_int8.cl)."""


@dataclass(frozen=True)
class DispatchKey:
    """Shapes of inputs by name, image sizes in texels, and required int8 dot instructions.

    byte_dots: whether `DeviceInfo.byte_dots` must equal the planned device's. shapes: of all inputs of the model, since
    sizes may come from unread ones (`Shape`). sizes: of a template, for each axis the number of its open size, None for
    an axis as in `shapes`.
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
        """The key of `program` of a model with inputs of these `shapes`, by default those that it reads."""
        texels = [(w, h) for w, h, _ in program.image_pool]
        texels += [s.image for s in program.slots if s.image is not None]
        read = {i.name: i.shape for i in program.inputs}
        dots = any(re.search(_BYTE_DOTS, source.options) for source in program.sources)
        return cls(read if shapes is None else {**shapes, **read}, sorted(set(texels)), sizes, dots)

    @classmethod
    def of_all(cls, programs: Sequence[Program], shapes: Mapping[str, tuple[int, ...]]) -> DispatchKey:
        """The key of the programs of a flow, of a model with inputs of these `shapes`."""
        parts = [cls.of(program, {}) for program in programs]
        return cls(shapes, sorted({i for p in parts for i in p.images}), None, any(p.byte_dots for p in parts))

    def sizes_of(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
        """The open sizes in inputs of `shapes`, () without a template; None if an axis does not fit.

        Unknown inputs are ignored. Absent inputs have their planned sizes.
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
        """The shapes in the syntax of `opalite compile`, with s0, s1, ... for open sizes."""
        names = self.sizes or {}
        return ", ".join(
            f"{name}:{'x'.join(_axis(*pair) for pair in zip(s, names.get(name) or (None,) * len(s), strict=True))}"
            for name, s in self.shapes.items()
        )


def _axis(size: int, number: int | None) -> str:
    return str(size) if number is None else f"s{number}"
