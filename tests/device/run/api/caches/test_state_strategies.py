"""session.state() by every strategy: the bound caches are read and written once a megakernel is built, too."""

from __future__ import annotations

import pytest

from opalite.cl.runtime import Runtime

from .....helpers.decoders import KINDS
from .test_model_state import PROMPT, expected, go_on, open_session


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_stay_the_same_once_a_megakernel_is_built(rt: Runtime, kind: str) -> None:
    model = KINDS[kind]()
    wanted, _ = expected(model, kind, PROMPT, 64)
    session = open_session(rt, model)
    for _ in range(3):
        tokens, _ = go_on(session.state(reserve=32), kind, PROMPT, 64)
        assert tokens == wanted
        session.settle(60)
