"""Every operator of onnxruntime's own domain is supported or rejected with a reason, as documented."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opalite.errors import UnsupportedOpError
from opalite.importer import handled_ops
from opalite.importer.proto.op_schemas import REFUSED
from opalite.importer.walk.control_flow import CONTROL

from ..oracles import MS, imported

PAGE = Path(__file__).parents[4] / "docs" / "contrib.md"


def supported() -> set[str]:
    plain = {name for domain, name in handled_ops() if domain == MS}
    return plain | {key.partition(":")[2] for key in CONTROL if key.startswith(f"{MS}:")}


def test_no_operator_is_forgotten() -> None:
    pytest.importorskip("onnxruntime")
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    known = {s.name for s in state.get_all_operator_schema() if s.domain == MS}
    assert not known - supported() - REFUSED.keys()


def test_none_is_both_supported_and_refused() -> None:
    assert not supported() & REFUSED.keys()


def test_the_document_names_them_all() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [name for name in sorted(supported() | REFUSED.keys()) if f"`{name}`" not in text]
    assert not missing


@pytest.mark.parametrize(
    ("op", "reason"), [("PagedAttention", "pages"), ("QOrderedMatMul", "cuBLASLt"), ("Snpe", "engine")]
)
def test_a_refusal_says_why(op: str, reason: str) -> None:
    with pytest.raises(UnsupportedOpError, match=reason):
        imported(op, [np.zeros(3, np.float32)], domain=MS)
