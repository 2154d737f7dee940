"""Stream: a text as an iterator of pieces while it is generated; Streams: several texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from .generated_text import GeneratedText, GenerationMetrics
from .sampling import TokenLogprobs
from .text_batch import TextBatch


class Streams:
    """Iterator of (number of the text, piece of it) while several texts are generated; `close()` ends all early.

    texts: tokens, reason and metrics of each.
    """

    def __init__(self, batch: TextBatch, texts: Sequence[GeneratedText], weight_bytes: Callable[[], int]) -> None:
        self.texts = list(texts)
        self._batch, self._weight_bytes = batch, weight_bytes
        self._numbers = {text: number for number, text in enumerate(texts)}
        self._pieces: deque[tuple[int, str]] = deque()
        for text in texts:
            batch.add(text)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return self

    def __next__(self) -> tuple[int, str]:
        while not self._pieces:
            if all(text.reason for text in self.texts):
                raise StopIteration
            try:
                self._pieces += [(self._numbers[text], piece) for text, piece in self._batch.step() if piece]
            finally:
                self._update_metrics()
            failure = next((text.failure for text in self.texts if text.failure is not None), None)
            if failure is not None:
                self.close()
                raise failure
        return self._pieces.popleft()

    def close(self) -> None:
        """End the texts."""
        for text in self.texts:
            text.close()
        self._pieces.clear()
        self._update_metrics()

    def _update_metrics(self) -> None:
        for text in self.texts:
            if text.reason:
                text.metrics.weight_bytes = self._weight_bytes()


class Stream:
    """Iterator of pieces of a text, each of whole characters; `close()` ends it early.

    tokens: ids so far, including an end token. logprobs: of each of them, if Sampling asks for them. reason: '' while
    running, then 'end' (end token), 'stop' (stop string), 'length' or 'closed'. metrics: metrics so far.
    """

    def __init__(self, streams: Streams) -> None:
        """Initialise; streams: of one text."""
        self._streams, self._text = streams, streams.texts[0]

    @property
    def tokens(self) -> list[int]:
        return self._text.tokens

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        return self._text.logprobs

    @property
    def reason(self) -> str:
        return self._text.reason

    @property
    def metrics(self) -> GenerationMetrics:
        return self._text.metrics

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._streams)[1]

    def close(self) -> None:
        """End the text."""
        self._streams.close()
