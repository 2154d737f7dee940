"""Small inputs that come to a device as the argument of a launch, as they do on NVIDIA's (cl/courier.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl import tensor
from opalite.cl.courier import Courier
from opalite.cl.runtime import Runtime

from ....helpers.onnx_text import parse

WEIGHTS = "{" + ", ".join(map(str, range(20))) + "}"
MIXED = f"""agraph (float[N,5] x, int64[N] i, bool[N] m, float16[3] h) => (float[N,5] y, float16[3] z)
<float[4,5] w = {WEIGHTS}>
{{ rows = Gather(w, i) sum = Add(x, rows) axes = Constant <value_ints = [1]> () seen = Unsqueeze(m, axes)
  y = Where(seen, sum, x) z = Add(h, h) }}"""


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device whose memory the host does not reach; numbers of pieces that were sent."""
    monkeypatch.setenv("OPALITE_STEP_LOOP", "0")
    monkeypatch.setattr(tensor, "shares_memory", lambda *_: False)
    monkeypatch.setattr(Runtime, "shares_memory", property(lambda _: False))
    monkeypatch.setattr(Runtime, "carries", True)
    found: list[int] = []
    send = Courier.send

    def noted(self: Courier) -> None:
        found.append(self._count)
        send(self)

    monkeypatch.setattr(Courier, "send", noted)
    return found


def feeds(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, i = rng.standard_normal((n, 5), np.float32), rng.integers(0, 4, n)
    return {"x": x, "i": i, "m": rng.integers(0, 2, n) > 0, "h": rng.standard_normal(3).astype(np.float16)}


def wanted(f: dict[str, Any]) -> list[Any]:
    rows = np.arange(20, dtype=np.float32).reshape(4, 5)[f["i"]]
    return [np.where(f["m"][:, None], f["x"] + rows, f["x"]), f["h"] + f["h"]]


def check(session: opalite.InferenceSession, f: dict[str, Any]) -> None:
    for got, want in zip(session.run(None, f), wanted(f), strict=True):
        np.testing.assert_array_equal(got, want)


def test_inputs_of_all_kinds_and_sizes(rt: Runtime, sent: list[int]) -> None:
    with opalite.InferenceSession(parse(MIXED).SerializeToString(), device=rt.info.id, precision="fp32") as session:
        for seed, n in enumerate((3, 1, 3, 7, 40, 3, 1000, 7, 30_000, 3)):
            check(session, feeds(n, seed))
    assert any(sent)


def test_what_cannot_change_is_brought_once(rt: Runtime, sent: list[int]) -> None:
    with opalite.InferenceSession(parse(MIXED).SerializeToString(), device=rt.info.id, precision="fp32") as session:
        f = feeds(6, 0)
        for array in f.values():
            array.flags.writeable = False
        check(session, f)
        check(session, f)
        sent.clear()
        check(session, f)
        assert not any(sent)
        check(session, feeds(6, 1))
        assert any(sent)


def test_a_run_that_fails_leaves_nothing_behind(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    with opalite.InferenceSession(parse(MIXED).SerializeToString(), device=rt.info.id, precision="fp32") as session:
        check(session, feeds(6, 0))
        fixed = feeds(6, 1)
        for array in fixed.values():
            array.flags.writeable = False
        with monkeypatch.context() as patch:
            patch.setattr("opalite.cl.launch.Recording.run", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                session.run(None, fixed)
        check(session, fixed)
