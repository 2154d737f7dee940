"""PictureReader: pictures as arrays of a session's inputs, with the conversion that the model expects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..errors import InputError, OpaliteError
from .detections import THRESHOLD
from .first_layer import import_at
from .input_spec import InputSpec
from .picture_input import (
    PictureInput,
    PictureShape,
    flat_picture,
    open_picture,
    open_size,
    picture_array,
    picture_shape,
)
from .preprocess import Preprocess, find_preprocess
from .preprocess_choice import choose_preprocess, find_labels
from .recognition import recognize
from .results import Result

if TYPE_CHECKING:
    from ..ir.graph import Graph
    from ..run.api.session.inference_session import InferenceSession

_STEP = 32  # sizes that networks with five halvings take
_LINE_HEIGHTS = (48, 32, 64)


@dataclass
class PictureReader:
    """Reads pictures for a model's inputs, and finds what its outputs mean.

    model: the file. inputs: all of them. metadata: the file's own. keeps_sizes: open sizes are those of the examples,
    as in a bundle. preprocess: the conversion; None for what the model says, or a guess. numbers: fields of Preprocess
    that replace those found. layout: NCHW, NHWC, or '' for what the input's shape says.
    """

    model: str | bytes
    inputs: Sequence[InputSpec]
    metadata: Mapping[str, str] = field(default_factory=dict)
    keeps_sizes: bool = False
    preprocess: Preprocess | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    layout: str = ""
    _chosen: dict[str, Preprocess] = field(default_factory=dict)
    _reasons: dict[tuple[tuple[str, tuple[int, ...]], ...], OpaliteError | None] = field(default_factory=dict)
    _graph: tuple[Any, Graph | None] = (None, None)  # of the shapes that were asked for last

    @classmethod
    def of(
        cls, session: InferenceSession, model: str | os.PathLike[str], preprocess: str | Preprocess | None = None
    ) -> PictureReader:
        """A reader for an open session of the file `model`. preprocess: a preset's name, a .json file or an object."""
        path = os.fspath(model)
        made = find_preprocess(preprocess) if isinstance(preprocess, str) else preprocess
        return cls(path, input_specs(session), session.get_modelmeta().custom_metadata_map, preprocess=made)

    def read(
        self,
        picture: str | os.PathLike[str] | Image.Image,
        name: str | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> PictureInput:
        """Make a picture, or a picture file, the array of an input, by default the first. InputError.

        shapes: shapes to use for inputs with open sizes; otherwise open heights and widths are the picture's.
        """
        w = self.inputs[0] if name is None else next((i for i in self.inputs if i.name == name), None)
        if w is None:
            raise InputError(
                f"no input is named {name!r}; the model's inputs are {', '.join(i.name for i in self.inputs)}"
            )
        opened, note = flat_picture(picture) if isinstance(picture, Image.Image) else open_picture(Path(picture))
        given = dict(shapes or {})
        dims = given.get(w.name) or (w.example if self.keeps_sizes else w.shape)
        shape = picture_shape(w.name, dims, self.layout)
        others = {i.name: given.get(i.name, i.example) for i in self.inputs}
        size = self._accepted_size(w, shape, open_size(shape, opened.size), others)
        if w.name not in self._chosen:
            self._chosen[w.name] = self._choose(w, shape, {**others, w.name: _full(shape, size)})
        return replace(picture_array(opened, w, shape, size, self._chosen[w.name]), note=note)

    def _accepted_size(
        self, w: InputSpec, shape: PictureShape, size: tuple[int, int], others: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, int]:
        """Round open sizes to multiples of 32 if the model does not take `size`. A film asks once."""
        if shape.height is not None and shape.width is not None:
            return size
        reasons = []
        for tried in (size, *_other_sizes(shape, size)):
            asked = {**others, w.name: _full(shape, tried)}
            key = tuple(asked.items())
            if key not in self._reasons:
                self._reasons[key] = self._import(asked)[1]
            if self._reasons[key] is None:
                return tried
            reasons.append(self._reasons[key])
        example = "x".join(map(str, _full(shape, size)))
        raise InputError(
            f"the model takes no picture of {size[0]}x{size[1]} pixels as input '{w.name}', nor one of multiples of "
            f"{_STEP}; give a size that it takes in place of that in --shape {w.name}:{example}: {reasons[0]}"
        )

    def _import(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Graph | None, OpaliteError | None]:
        """The model's graph for these shapes, which the choice of a conversion asks for, too; why it takes them not."""
        graph, reason = import_at(self.model, shapes)
        self._graph = (dict(shapes), graph)
        return graph, reason

    def _graph_at(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph | None:
        held, graph = self._graph
        self._graph = (None, None)  # it holds the model's weights
        return graph if held == shapes else import_at(self.model, shapes)[0]

    def choose(self, name: str, preprocess: Preprocess) -> None:
        """Take another conversion for the input `name` from now on."""
        self._chosen[name] = preprocess

    def _choose(self, w: InputSpec, shape: PictureShape, shapes: Mapping[str, tuple[int, ...]]) -> Preprocess:
        numbers = dict(self.numbers)
        if self.preprocess is not None:
            found = self.preprocess
        elif numbers.keys() & {"mean", "std", "scale"}:
            found = Preprocess(reason="by the options")
        else:
            found = choose_preprocess(self.model, self.metadata, w.name, w.dtype, shape, lambda: self._graph_at(shapes))
        if numbers.get("colors", found.colors) != found.colors:
            numbers = {"mean": found.mean[::-1], "std": found.std[::-1], **numbers}  # they follow the channels
        return replace(found, **numbers)

    @cached_property
    def labels(self) -> list[str]:
        """The names of the model's classes, from its metadata or a file beside it; [] if there are none."""
        return find_labels(self.model, self.metadata)

    def recognize(
        self,
        outputs: Mapping[str, Any] | Sequence[Any],
        given: PictureInput,
        labels: Sequence[str] | None = None,
        threshold: float = THRESHOLD,
        top: int = 5,
    ) -> Result | None:
        """Find what the outputs for a picture mean. None if they have no known meaning.

        labels: names of classes, by default the model's. threshold: least score of a box. top: classes to give.
        """
        named = outputs if isinstance(outputs, Mapping) else {str(i): value for i, value in enumerate(outputs)}
        names = self.labels if labels is None else labels
        return recognize(named, given.placement.size, given.preprocess, names, given.channels, threshold, top)


def input_specs(session: InferenceSession) -> list[InputSpec]:
    """The inputs of a session. InputError for inputs but tensors."""
    specs = []
    examples = session.example_shapes()
    for port in session.get_inputs():
        if port.dtype is None:
            raise InputError(f"input '{port.name}' is {port.type}: only tensors can be read from files")
        shape = tuple(d if isinstance(d, int) else None for d in port.shape)
        specs.append(InputSpec(port.name, port.dtype, shape, examples[port.name]))
    return specs


def _other_sizes(shape: PictureShape, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Sizes (width, height) for networks that do not take `size`: multiples of 32, and heights of lines of text."""
    width, height = (max(_STEP, round(s / _STEP) * _STEP) for s in size)
    found = [(shape.width or width, shape.height or height)]
    if shape.height is None and shape.width is None:
        found += [(max(line, round(size[0] * line / size[1])), line) for line in _LINE_HEIGHTS]
    return found


def _full(shape: PictureShape, size: tuple[int, int]) -> tuple[int, ...]:
    """The shape of an input for a picture of `size` (width, height)."""
    sizes = {"N": shape.batch or 1, "C": shape.channels or 3, "H": size[1], "W": size[0]}
    return tuple(sizes[axis] for axis in shape.layout)
