"""PictureReader: pictures as arrays of a session's inputs, with the conversion that the model expects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..errors import InputError
from .detections import THRESHOLD
from .first_layer import accepts
from .input_spec import InputSpec
from .picture_input import PictureInput, PictureShape, open_picture, open_size, picture_array, picture_shape
from .preprocess import Preprocess, find_preprocess
from .preprocess_choice import choose_preprocess, find_labels
from .recognition import recognize
from .results import Result

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession

_STEP = 32  # sizes that networks with five halvings take


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
    _accepts: dict[tuple[tuple[str, tuple[int, ...]], ...], bool] = field(default_factory=dict)

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
        opened = picture.convert("RGB") if isinstance(picture, Image.Image) else open_picture(Path(picture))
        given = dict(shapes or {})
        dims = given.get(w.name) or (w.example if self.keeps_sizes else w.shape)
        shape = picture_shape(w.name, dims, self.layout)
        others = {i.name: given.get(i.name, i.example) for i in self.inputs}
        size = self._accepted_size(w, shape, open_size(shape, opened.size), others)
        if w.name not in self._chosen:
            self._chosen[w.name] = self._choose(w, shape, {**others, w.name: _full(shape, size)})
        return picture_array(opened, w, shape, size, self._chosen[w.name])

    def _accepted_size(
        self, w: InputSpec, shape: PictureShape, size: tuple[int, int], others: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, int]:
        """Round open sizes to multiples of 32 if the model does not take `size`. A film asks once."""
        if shape.height is not None and shape.width is not None:
            return size
        asked = tuple({**others, w.name: _full(shape, size)}.items())
        if asked not in self._accepts:
            self._accepts[asked] = accepts(self.model, dict(asked))
        if self._accepts[asked]:
            return size
        width, height = (max(_STEP, round(s / _STEP) * _STEP) for s in size)
        return shape.width or width, shape.height or height

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
            found = choose_preprocess(self.model, self.metadata, w.name, w.dtype, shape, shapes)
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


def _full(shape: PictureShape, size: tuple[int, int]) -> tuple[int, ...]:
    """The shape of an input for a picture of `size` (width, height)."""
    sizes = {"N": shape.batch or 1, "C": shape.channels or 3, "H": size[1], "W": size[0]}
    return tuple(sizes[axis] for axis in shape.layout)
