"""Embedding: vectors of tokens for decoders that read these in place of tokens, and pictures among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, ModelFileError
from .model_folder import ModelFolder

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession
    from ..run.model.model_inputs_outputs import NodeArg

Array = np.ndarray[Any, Any]
GIVEN = -1
"""In a prompt: a position whose vector is given."""
VECTORS = "inputs_embeds"
"""Name by which a text holds the vectors of its given positions."""


class Embedding:
    """The model of a folder that embeds tokens, and the one that encodes pictures.

    open_session: function that opens the session of a file with the caller's options.
    """

    def __init__(self, folder: ModelFolder, open_session: Callable[[Any], InferenceSession]) -> None:
        assert folder.embedding is not None
        self.session = open_session(folder.embedding)
        self.vision = None if folder.vision is None else open_session(folder.vision)
        self._folder = folder
        whole = [a for a in self.session.get_inputs() if a.dtype is not None and not a.dtype.is_float]
        others = [a for a in self.session.get_inputs() if a not in whole]
        if len(whole) != 1:
            names = ", ".join(a.name for a in self.session.get_inputs())
            raise InputError(f"{folder.embedding} takes {names}: expected one input of token numbers")
        self._tokens, self._others = whole[0], others

    @property
    def sessions(self) -> list[InferenceSession]:
        return [s for s in (self.session, self.vision) if s is not None]

    def rows(self, tokens: Array) -> Array:
        """Return the vectors [B,S,width] of tokens [B,S]; those of given positions are any."""
        assert self._tokens.dtype is not None
        feeds = {self._tokens.name: np.where(self.is_given(tokens), 0, tokens).astype(self._tokens.dtype.np)}
        # Vectors of pictures are put in their places later.
        feeds |= {a.name: self._none_of(a) for a in self._others}
        found: Array = np.asarray(self.session.run(None, feeds)[0])
        return found

    def _none_of(self, arg: NodeArg) -> Array:
        """Return no vectors, for an input of them."""
        assert arg.dtype is not None
        *counts, width = (d if isinstance(d, int) else 0 for d in arg.shape)
        return np.zeros((*counts, width or self._folder.width or 0), arg.dtype.np)

    def is_given(self, tokens: Any) -> Array:
        """Whether the vectors of positions are given: a picture's, or the caller's."""
        found: Array = np.isin(tokens, [GIVEN] if self.image_token is None else [GIVEN, self.image_token])
        return found

    @property
    def image_token(self) -> int | None:
        """The token in whose places a picture's vectors are."""
        return self._folder.image_token

    def see(self, given: Mapping[str, Any], tokens: Sequence[int]) -> tuple[list[int], Array]:
        """Return the prompt with a token for each vector of the pictures, and these vectors [n, width].

        given: arrays for the pictures' encoder by name, such as pixel_values. InputError if they do not fit the prompt.
        """
        path, vision = self._folder.path, self.vision
        if vision is None:
            raise InputError(f"{path} has no encoder that could read {', '.join(given)}")
        if self.image_token is None:
            raise InputError(f"{path} names no image_token_id in config.json: give the vectors as inputs_embeds")
        missing = [a for a in vision.get_inputs() if a.name not in given and not a.is_optional]
        if missing:
            arg = missing[0]
            raise InputError(f"the encoder of pictures reads '{arg.name}' {arg.type}{arg.shape}: add the array")
        found = np.asarray(vision.run(None, dict(given))[0])
        vectors = found.reshape(-1, found.shape[-1])
        places = list(tokens).count(self.image_token)
        if not places or len(vectors) % places:
            raise InputError(
                f"the pictures have {len(vectors)} vectors, and the prompt has {places} tokens {self.image_token} for "
                "them: one for each picture, or one for each vector"
            )
        each = len(vectors) // places
        return [t for token in tokens for t in [token] * (each if token == self.image_token else 1)], vectors

    def fill(self, rows: Array, tokens: Sequence[int], before: Sequence[int], vectors: Array) -> Array:
        """Put `vectors` into the given positions of rows [1,S,width]; those of tokens `before` took the first ones."""
        places, taken = self.is_given(tokens), int(self.is_given(before).sum())
        filled = rows.copy()
        filled[0, places] = vectors[taken : taken + int(places.sum())]
        return filled

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def open_embedding(folder: ModelFolder, open_session: Callable[[Any], InferenceSession], taker: NodeArg) -> Embedding:
    """Open the embedding of a decoder whose input `taker` takes vectors. ModelFileError if the folder has none."""
    if folder.embedding is None:
        raise ModelFileError(
            f"{folder.decoder} reads '{taker.name}', and {folder.path} has no model that embeds tokens: "
            "embed_tokens.onnx beside it, or the one that genai_config.json names"
        )
    return Embedding(folder, open_session)


def check_vectors(vectors: Any, width: Any) -> Array:
    """Return `inputs_embeds`, [n, width] or [1, n, width], as [n, width]. InputError for other arrays."""
    array = np.asarray(vectors)
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    fits = array.ndim == 2 and len(array) and array.dtype.kind == "f"
    if not fits or (isinstance(width, int) and array.shape[-1] != width):
        raise InputError(f"inputs_embeds are floats [positions, {width}], got {array.dtype.name}{list(array.shape)}")
    return array
