"""TextModel: serves a text generator; texts of requests that wait together are generated together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..wire.datatypes import is_unicode
from ..wire.infer_messages import Array
from ..wire.serve_errors import Invalid, nearest_hint
from .active_run import ActiveRun, Cancelled, RunResult

if TYPE_CHECKING:
    from ...llm.generated_text import GeneratedText
    from ...llm.sampling import TokenLogprobs

_OPTIONS: dict[str, type] = {
    "max_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "seed": int,
    "stop": str,
    "ignore_end": bool,
    "chat": bool,
    "system": str,
}
_OF_REQUESTS = ("timeout", "priority", "stream", "triton_enable_empty_final_response")
"""Parameters of a request that are not the model's. `stream` is sent by some clients, whose path says it."""


@dataclass
class _TextRun:
    """A text and the run that waits for it. sent: log-probabilities that were sent."""

    text: GeneratedText
    run: ActiveRun
    sent: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


class TextModel:
    """Serves a Generator by `text_input` and `text_output`.

    One thread generates the texts of all runs, which are those of several threads: texts join between two tokens, and
    leave when they end or when their run is cancelled.
    """

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        from ...llm.generator import Generator
        from ...llm.text_batch import MAX_TEXTS

        self._generator = Generator(path, **options)
        self._generator.generate("a", max_tokens=2, ignore_end=True)
        self._batch = self._generator.texts
        self._concurrency = 1 if self._batch.refusal else MAX_TEXTS
        for count in (3, MAX_TEXTS)[: self._concurrency - 1]:  # programs for 4 and 8 slots; `refusal` has run two
            self._generator.generate(["a"] * count, max_tokens=3, ignore_end=True)
        self._runs: dict[GeneratedText, _TextRun] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def describe(self) -> dict[str, Any]:
        return {
            "inputs": [["text_input", "BYTES", [1]]],
            "outputs": [["text_output", "BYTES", [1]]],
            "device": self._generator.session.device.id,
            "batchable": False,
            "on_host": self._generator.session.device.on_host,
            "concurrency": self._concurrency,
            "max_batches": self._concurrency,
        }

    def run(
        self,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        parameters: Mapping[str, Any],
        run: ActiveRun,
    ) -> RunResult:
        """Generate a text, together with those of other threads. Cancelled if the run is."""
        prompt = feeds["text_input"]
        if prompt.size != 1:
            raise Invalid(f"input 'text_input' is one text, got {prompt.size}; send a request for each")
        if not is_unicode(prompt.flat[0]):
            raise Invalid("input 'text_input' is no UTF-8 text")
        given = parameters.get("generation")
        options = dict(given) if isinstance(given, dict) else self._options(parameters)
        if bias := options.get("logit_bias"):
            options["logit_bias"] = {int(token): value for token, value in bias.items()}
        text = self._generator.new_text(options.pop("prompt", prompt.flat[0]), **options)
        own = _TextRun(text, run)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._generate, daemon=True)
                self._thread.start()
            self._runs[text] = own
            self._batch.add(text)
            self._changed.notify()
        own.ended.wait()
        if text.failure is not None:
            raise text.failure
        counts = {"tokens": len(text.tokens), "prompt_tokens": text.metrics.prompt_tokens}
        return [], {"reason": text.reason, **counts}

    def _generate(self) -> None:
        """Generate texts as long as there are any, and wait for others."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._runs or self._is_closed)
                if self._is_closed:
                    return
                runs = dict(self._runs)
            for own in runs.values():
                if own.run.is_cancelled:
                    own.text.close(Cancelled())
            try:
                for text, piece in self._batch.step():
                    if piece:
                        self._send(self._runs[text], piece)  # it may have joined since
            except Exception as e:  # of the model, after which all texts have failed; or the server has left
                for text in runs:
                    text.close(e)
            with self._changed:
                for text in [t for t in self._runs if t.reason]:
                    self._runs.pop(text).ended.set()

    def _send(self, own: _TextRun, piece: str) -> None:
        logprobs = own.text.logprobs
        own.run.piece(piece, [self._readable(p) for p in logprobs[own.sent :]])
        own.sent = len(logprobs)

    def _readable(self, found: TokenLogprobs) -> list[Any]:
        """Log-probabilities with the texts of tokens."""
        decode = self._generator.tokenizer.decode
        return [decode([found.token]), found.logprob, [[decode([token]), p] for token, p in found.top]]

    def stats(self) -> dict[str, Any]:
        return self._generator.session.stats().to_raw()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._generator.close()

    def _options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The options of Generator.stream. Invalid for a value of another type, and for unknown names."""
        unknown = next((n for n in parameters if n not in _OPTIONS and n not in _OF_REQUESTS), None)
        if unknown is not None:
            hint = nearest_hint(unknown, _OPTIONS)
            raise Invalid(f"there is no parameter '{unknown[:64]}'; known are {', '.join(_OPTIONS)}{hint}")
        found = {}
        for name, kind in _OPTIONS.items():
            value = parameters.get(name)
            if value is None:
                continue
            fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise Invalid(f"parameter '{name}' is {kind.__name__}, got {value!r}")
            found[name] = kind(value)
        return found
