"""Host operators on strings: tokens, n-grams, case, splitting, joining and matching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import ModelError, ShapeError
from ...ir import Array
from .numpy_ops import HostNode, Step, host_op, host_step
from .regex import Pattern


def _each(x: Array, fn: Callable[[str], Any], dtype: Any = object) -> Array:
    """Apply fn to every element."""
    out = np.empty(x.size, dtype)
    out[:] = [fn(v) for v in x.reshape(-1).tolist()]
    return out.reshape(x.shape)


def _padded(rows: Sequence[list[str]], fill: str) -> Array:
    """Return rows as a matrix as wide as the longest one, padded with `fill`."""
    out = np.full((len(rows), max(map(len, rows), default=0)), fill, object)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out


# Case and stop words


def _lower(text: str) -> str:
    """Convert to lower case by character, skipping characters whose lower case has two characters."""
    return text.lower() if text.isascii() else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(c.upper() if len(c.upper()) == 1 else c for c in text)


@host_op("StringNormalizer")
def string_normalizer(node: HostNode) -> Step:
    """Remove stop words from strings [C] or [1,C] and change case; without words left, one empty string."""
    attrs = node.attrs
    action = attrs.get("case_change_action", "NONE")
    change = {"NONE": None, "LOWER": _lower, "UPPER": _upper}.get(action)
    if change is None and action != "NONE":
        raise ModelError(f"StringNormalizer has case_change_action '{action}'; known are NONE, LOWER, UPPER")
    exact = bool(attrs.get("is_case_sensitive", 0))
    stop = {w if exact else _lower(w) for w in attrs.get("stopwords", ())}

    def run(inputs: Sequence[Any]) -> list[Any]:
        x = np.asarray(inputs[0])
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise ShapeError(f"StringNormalizer takes strings of [C] or [1,C], got {list(x.shape)}")
        words = x.reshape(-1).tolist()
        if stop:
            words = [w for w in words if (w if exact else _lower(w)) not in stop] or [""]
        if change is not None:
            words = [change(w) for w in words]
        out = np.empty(len(words), object)
        out[:] = words
        return [out if x.ndim == 1 else out.reshape(1, -1)]

    return run


# Tokens


@host_op("Tokenizer", "com.microsoft")
def tokenizer(node: HostNode) -> Step:
    """Split strings [C] or [N,C] into tokens along a new last axis, padded with pad_value.

    Tokens are the matches of tokenexp, or the pieces between matches of each separator in turn; a single empty
    separator splits into characters. Tokens shorter than mincharnum are dropped. mark: each row is enclosed in the
    characters 2 and 3.
    """
    attrs = node.attrs
    pad, least = attrs.get("pad_value", ""), int(attrs.get("mincharnum", 1))
    separators, expression = attrs.get("separators", ()), attrs.get("tokenexp")
    if not separators and not expression:
        raise ModelError("Tokenizer has neither separators nor tokenexp")
    if expression:
        token = Pattern(expression, "Tokenizer", longest=True)

        def cut(text: str) -> list[str]:
            return [text[a:b] for a, b in token.spans(text) if b - a >= least]

    elif list(separators) == [""]:

        def cut(text: str) -> list[str]:
            return list(text)

    else:
        ends = [Pattern(s, "Tokenizer", longest=True) for s in separators if s]

        def cut(text: str) -> list[str]:
            parts = [text]
            for end in ends:
                parts = [p for part in parts for p in _between(end, part) if len(p) >= max(1, least)]
            return parts

    marks = bool(attrs.get("mark", 0))

    def run(inputs: Sequence[Any]) -> list[Any]:
        x = np.asarray(inputs[0])
        if x.ndim not in (1, 2):
            raise ShapeError(f"Tokenizer takes strings of [C] or [N,C], got {list(x.shape)}")
        if not x.size:
            return [x]  # without rows no axis is added, as in onnxruntime
        rows = [cut(text) for text in x.reshape(-1).tolist()]
        if marks and any(rows):
            rows = [["\x02", *row, "\x03"] for row in rows]
        out = _padded(rows, pad)
        return [out.reshape(*x.shape, out.shape[1])]

    return run


def _between(end: Pattern, text: str) -> list[str]:
    """Return the pieces between matches."""
    found, start = [], 0
    for first, last in end.spans(text):
        found.append(text[start:first])
        start = last
    return [*found, text[start:]]


# N-grams


@host_op("TfIdfVectorizer")
def tf_idf_vectorizer(node: HostNode) -> Step:
    """Count the n-grams of a pool in the rows of x [C] or [N,C], or test for them, times weights."""
    attrs = node.attrs
    mode, size = attrs.get("mode", "TF"), max(attrs["ngram_indexes"], default=-1) + 1
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ModelError(f"TfIdfVectorizer has mode '{mode}'; known are TF, IDF, TFIDF")
    least, most, skips = (int(attrs[n]) for n in ("min_gram_length", "max_gram_length", "max_skip_count"))
    pool = list(attrs.get("pool_strings") or attrs.get("pool_int64s") or ())
    words: dict[Any, int] = {}
    numbers = np.array([words.setdefault(w, len(words)) for w in pool], np.int64)
    grams: list[tuple[int, _NGrams]] = []
    starts, first = [*attrs["ngram_counts"], len(pool)], 0
    for n, (start, end) in enumerate(pairwise(starts), 1):
        if end < start or (end - start) % n:
            raise ModelError(f"TfIdfVectorizer has {end - start} words for {n}-grams, not a multiple of {n}")
        count = (end - start) // n
        places = np.asarray(attrs["ngram_indexes"][first : first + count], np.int64)
        first += count
        if count and least <= n <= most:
            grams.append((n, _NGrams(numbers[start:end].reshape(count, n), places, len(words))))
    weights = np.ones(size, np.float32)
    if mode != "TF" and attrs.get("weights"):
        weights = np.zeros(size, np.float32)
        weights[np.asarray(attrs["ngram_indexes"])] = np.asarray(attrs["weights"], np.float32)
    whole = np.array([w for w in words if not isinstance(w, str)], np.int64)
    order = np.argsort(whole, kind="stable")

    def known(x: Array) -> Array:
        """Return the indices of words in the pool, -1 for others."""
        if x.dtype == object:
            flat = x.reshape(-1).tolist()
            return np.fromiter((words.get(v, -1) for v in flat), np.int64, len(flat)).reshape(x.shape)
        if not len(whole):
            return np.full(x.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(whole[order], x), len(whole) - 1)
        return np.where(whole[order][at] == x, order[at], -1)

    def run(inputs: Sequence[Any]) -> list[Any]:
        x = np.asarray(inputs[0])
        if x.ndim not in (1, 2):
            raise ShapeError(f"TfIdfVectorizer takes [C] or [N,C], got {list(x.shape)}")
        ids = known(x if x.ndim == 2 else x.reshape(1, -1))
        rows, length = ids.shape
        counts = np.zeros(rows * size, np.float32)
        for n, gram in grams:
            for apart in range(1, 2 + (skips if n > 1 else 0)):
                wide = length - (n - 1) * apart
                if wide > 0:
                    place = gram.find([ids[:, k * apart : k * apart + wide] for k in range(n)])
                    row, column = np.nonzero(place >= 0)
                    counts += np.bincount(row * size + place[row, column], minlength=len(counts)).astype(np.float32)
        table = counts.reshape(rows, size)
        if mode == "IDF":
            table = np.where(table > 0, weights, 0).astype(np.float32)
        elif mode == "TFIDF":
            table = table * weights
        return [table if x.ndim == 2 else table.reshape(size)]

    return run


class _NGrams:
    """N-grams of one length, matched word by word: the index of a prefix and the next word give a longer prefix."""

    def __init__(self, grams: Array, places: Array, words: int) -> None:
        """Initialise; grams[count, n]: word indices below `words`; places[count]: their output columns."""
        self._words = words
        self._first = np.full(words + 1, -1, np.int64)  # the last entry is for unknown words
        starts = np.unique(grams[:, 0])
        self._first[starts] = np.arange(len(starts))
        state = self._first[grams[:, 0]]
        self._steps: list[Array] = []
        for k in range(1, grams.shape[1]):
            keys, state = np.unique(state * words + grams[:, k], return_inverse=True)
            self._steps.append(keys)
        self._place = np.full(int(state.max(initial=-1)) + 1, -1, np.int64)
        self._place[state] = places

    def find(self, columns: Sequence[Array]) -> Array:
        """Return the output column of the n-gram with words `columns`, -1 for unknown n-grams."""
        state = self._first[columns[0]]
        for keys, ids in zip(self._steps, columns[1:], strict=True):
            wanted = state * self._words + ids
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            state = np.where((state >= 0) & (ids >= 0) & (keys[at] == wanted), at, -1)
        return np.where(state >= 0, self._place[state], -1)


# Joining, splitting, matching


@host_op("StringConcat")
def string_concat(node: HostNode) -> Step:
    """Concatenate strings elementwise, with broadcasting."""
    return lambda inputs: [np.asarray(np.add(np.asarray(inputs[0], object), np.asarray(inputs[1], object)), object)]


@host_step("StringSplit")
def string_split(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Split strings along a new last axis, padded with empty strings; also return the number of pieces."""
    mark, most = node.attrs.get("delimiter") or None, node.attrs.get("maxsplit")
    limit = -1 if most is None else int(most)
    x = np.asarray(inputs[0])
    texts = x.reshape(-1).tolist()
    if mark is None:  # trailing white space does not belong to the last piece
        texts = [text.strip() for text in texts]
    rows = [text.split(mark, limit) if text else [] for text in texts]
    out = _padded(rows, "")
    counts = np.array([len(r) for r in rows], np.int64)
    return node.named([out.reshape(*x.shape, out.shape[1]), counts.reshape(x.shape)])


@host_op("RegexFullMatch")
def regex_full_match(node: HostNode) -> Step:
    """Test whether each string matches completely."""
    matches = Pattern(node.attrs["pattern"], "RegexFullMatch").matches
    return lambda inputs: [_each(np.asarray(inputs[0]), matches, bool)]
