"""Caches whose size the model leaves open, though it computes them of one size."""

from __future__ import annotations

import pytest

import onnx
from opalite.cl.runtime import Runtime
from opalite.errors import OptionError

from .....helpers import decoders
from .....helpers.decoders import KINDS
from .test_model_state import PROMPT, expected, feed, go_on, open_session


def open_heads(kind: str, axis: int = 3, name: str = "kv_cache_dim") -> bytes:
    """The model, whose caches say nothing of the size of heads, as onnxruntime-genai's builder writes them, or of
    another axis."""
    model = onnx.load_model_from_string(KINDS[kind]())
    for info in (*model.graph.input, *model.graph.output):
        if info.name.startswith(("past", "present")):
            info.type.tensor_type.shape.dim[axis].dim_param = name
    data: bytes = model.SerializeToString()
    return data


def test_the_head_size_is_inferred_or_given(rt: Runtime) -> None:
    wanted, _ = expected(KINDS["grouped"](), "grouped", PROMPT, 12)
    session = open_session(rt, open_heads("grouped"))
    state = session.state()
    for _ in range(2):
        assert go_on(state, "grouped", PROMPT, 12)[0] == wanted
        state.reset()
    assert state.copies == ""
    told = session.state(sizes={"kv_cache_dim": decoders.SIZE}, cache="int8")
    assert len(go_on(told, "grouped", PROMPT, 3)[0]) == 3
    assert {v.shape[3] for v in told.arrays().values()} == {decoders.SIZE}
    # An empty past may be joined to what is new whatever its size.
    joined = open_session(rt, open_heads("llama"))
    wanted, _ = expected(KINDS["llama"](), "llama", PROMPT, 6)
    for sizes in ({}, {"kv_cache_dim": decoders.SIZE}):
        assert go_on(joined.state(sizes=sizes), "llama", PROMPT, 6)[0] == wanted


def test_the_number_of_heads_must_be_given(rt: Runtime) -> None:
    session = open_session(rt, open_heads("llama", 1, "kv_heads"))
    with pytest.raises(OptionError, match=r"sizes=\{'kv_heads': \.\.\.\}"):
        feed(session.state(), PROMPT)
    wanted, _ = expected(KINDS["llama"](), "llama", PROMPT, 6)
    assert go_on(session.state(sizes={"kv_heads": 2}), "llama", PROMPT, 6)[0] == wanted
