"""Texts of several runs are generated together, and end, fail and are cancelled apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import OptionError
from opalite.serve.engine.active_run import ActiveRun, Cancelled
from opalite.serve.engine.text_model import TextModel

from ....helpers.decoders import KINDS
from ....helpers.words import make_folder

pytest.importorskip("tokenizers", reason="the extra opalite-cl[llm] is not installed")
pytest.importorskip("jinja2", reason="the extra opalite-cl[llm] is not installed")
MORE: dict[str, Any] = {"ignore_end": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("writer"), {"model.onnx": KINDS["grouped"]()})


@pytest.fixture(scope="module")
def model(rt: Runtime, folder: Path) -> Iterator[TextModel]:
    made = TextModel(str(folder), {"device": rt.info.id})
    yield made
    made.close()


class Caller(threading.Thread):
    """A thread that asks for a text; on_piece is called after each of its pieces."""

    def __init__(self, model: TextModel, prompt: str, on_piece: Callable[[Caller], None] | None = None, **options: Any):
        super().__init__()
        self.run_in_progress = ActiveRun(self._piece, lambda: None)
        self.text, self.failure = "", None
        self._call = lambda: model.run({"text_input": np.array([prompt], object)}, (), options, self.run_in_progress)
        self._on_piece = on_piece
        self.start()

    def _piece(self, text: str, logprobs: list[Any]) -> None:
        self.text += text
        if self._on_piece is not None:
            self._on_piece(self)

    def run(self) -> None:
        try:
            self.answer = self._call()[1]
        except Exception as e:
            self.failure = e  # type: ignore[assignment]


def until_there_are(model: TextModel, count: int) -> Callable[[Caller], None]:
    """Hold a text back until as many runs have joined."""

    def wait(caller: Caller) -> None:
        if len(caller.text) == 2:
            while len(model._runs) < count:
                time.sleep(0.001)

    return wait


def test_texts_of_several_runs(model: TextModel, folder: Path, rt: Runtime) -> None:
    assert model.describe()["concurrency"] == 8
    prompts = ["Once (5)", "Twice", "a"]
    callers = [Caller(model, prompts[0], until_there_are(model, 3), max_tokens=60, **MORE)]
    lengths: list[int] = []
    for i, p in enumerate(prompts[1:]):
        note = lambda _: lengths.append(len(callers[0].text))  # noqa: E731
        callers.append(Caller(model, p, note, max_tokens=6, temperature=1.2, seed=i, **MORE))
    for caller in callers:
        caller.join()
    assert max(lengths) < len(callers[0].text)
    assert [c.answer["tokens"] for c in callers] == [60, 6, 6]
    with opalite.Generator(folder, device=rt.info.id) as generator:
        assert callers[0].text == generator.generate(prompts[0], max_tokens=60, **MORE).text
        for i, (prompt, caller) in enumerate(zip(prompts[1:], callers[1:], strict=True)):
            assert caller.text == generator.generate(prompt, max_tokens=6, temperature=1.2, seed=i, **MORE).text


def test_runs_that_are_cancelled_or_fail_leave_the_others(model: TextModel) -> None:
    def cancel(caller: Caller) -> None:
        caller.run_in_progress.options.terminate = True

    bias = {"generation": {"logit_bias": {str(10**6): 1.0}, "max_tokens": 5}}
    long = Caller(model, "Once (5)", until_there_are(model, 2), max_tokens=40, **MORE)
    cancelled = Caller(model, "Twice", cancel, max_tokens=60, **MORE)
    cancelled.join()
    failed = Caller(model, "a", **bias)
    failed.join()
    long.join()
    assert isinstance(cancelled.failure, Cancelled)
    assert isinstance(failed.failure, OptionError)
    assert (long.failure, long.answer["tokens"], len(cancelled.text) < 60) == (None, 40, True)
    after = Caller(model, "Once (5)", max_tokens=40, **MORE)
    after.join()
    assert after.text == long.text
