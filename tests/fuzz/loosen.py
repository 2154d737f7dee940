"""Models that the document forbids and onnxruntime runs: valid small ones with one or two things changed.

python -m tests.fuzz --loosen --seconds 600 --seed 1 [--mode null|device]
python -m tests.fuzz --loosen --show SEED
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx.numpy_helper as nph

from .builder import LARGEST, Builder, Rejected
from .case import Array, Case
from .loose_edits import EDITS, Draft
from .oracle import IR_VERSIONS, open_session
from .registry import OPERATIONS, Focus
from .steps import NUMPY_TYPES

TRIES = 25
"""Changes that are tried on a model until onnxruntime takes one."""

DELIBERATE = (
    "has reduction '",
    "needs targets of the shape of scores",
    "support vectors",
    "sizes for",
    "for a tensor of rank",
    "magnitudes (",
    "integers from 1 on are supported",
    "must agree (batch_dims)",
    "expects one element in input",
    "intercepts for",
    "class labels for",
    "off axis",
    "numbers in imputed_value_floats",
    "has qk_matmul_output_mode",
    "is read, but the operator's importer gives none",
    "must hold one element, got shape",
    "needs time and batch as the first two axes",
)
"""Parts of sentences that refuse what onnxruntime takes, each for a reason that docs/dropin.md gives."""

DRAWN = frozenset(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"))
DRAWN |= frozenset(("Multinomial", "Dropout"))
"""Operators whose results are drawn anew."""

EXCEPT = frozenset(("node/test_maxunpool_export_with_output_shape",))
"""Cases of the suite that onnxruntime computes in another way than it is written there."""


# Valid models


@cache
def suite() -> dict[str, list[Case]]:
    """Cases of onnx's suite of single nodes by operator, of tensors of numbers."""
    from ..onnx.cases import all_cases, load_case

    found: dict[str, list[Case]] = {}
    for name, case in sorted(all_cases().items()):
        if not name.startswith("node/") or "expanded" in name:
            continue
        model, sets = load_case(case)
        arrays, _ = next(iter(sets))
        names = [v.name for v in model.graph.input]
        drawn = any(n.op_type in DRAWN for n in model.graph.node)
        if len(names) == len(arrays) and all(map(_is_plain, arrays)) and not drawn and name not in EXCEPT:
            op_type = model.graph.node[-1].op_type
            found.setdefault(op_type, []).append(Case(model, [dict(zip(names, arrays, strict=True))]))
    return found


def _is_plain(a: Any) -> bool:
    return isinstance(a, np.ndarray) and str(a.dtype) in NUMPY_TYPES.values() and a.size <= LARGEST


def _is_same(a: Any, b: Any) -> bool:
    """a, b: an output of two runs; None is an absent optional."""
    return a is not None and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def valid_case(seed: int) -> Case | None:
    """A small model: one of the suite, with some inputs as constants, or one of the generator's."""
    rng = np.random.default_rng([seed, 1])
    if rng.random() < 0.5:
        cases = suite()
        of_one = cases[sorted(cases)[int(rng.integers(len(cases)))]]
        case = of_one[int(rng.integers(len(of_one)))]
        draft = Draft(seed, case.model, case.feeds[0])
        version = next((o.version for o in draft.model.opset_import if o.domain in ("", "ai.onnx")), 1)
        draft.model.ir_version = min(draft.model.ir_version, IR_VERSIONS.get(version, 10))
        for name, array in case.feeds[0].items():
            if rng.random() < (0.7 if array.dtype.kind in "iub" else 0.3):
                _freeze(draft, name, array)
        return Case(draft.model, [draft.feeds])
    from . import operations  # noqa: F401  (fills the registry)

    name = sorted(OPERATIONS)[int(rng.integers(len(OPERATIONS)))]
    try:
        found = Builder(seed, 3, Focus((name,), share=50.0)).build()
    except Rejected:
        return None
    return Case(found.model, found.feeds[:1])


def _freeze(draft: Draft, name: str, array: Array) -> None:
    draft.graph.initializer.append(nph.from_array(array, name))
    kept = [v for v in draft.graph.input if v.name != name]
    del draft.graph.input[:]
    draft.graph.input.extend(kept)
    draft.feeds.pop(name)


def changes(seed: int) -> Iterator[Draft]:
    """Changes of the seed's valid model, endless."""
    case = valid_case(seed)
    if case is None:
        return
    weights = np.array([w for _, w in EDITS])
    for number in range(TRIES):
        draft = Draft(seed * TRIES + number, case.model, case.feeds[0])
        for _ in range(1 if draft.chance(0.8) else 2):
            change, _ = EDITS[int(draft.rng.choice(len(EDITS), p=weights / weights.sum()))]
            try:
                draft.told.append(change(draft))
            except (Rejected, ValueError, OverflowError):
                continue
        if draft.told:
            yield draft


def make_loose_case(seed: int) -> Case | None:
    """The first change of the seed's model that onnxruntime runs twice with one result; None where it takes none."""
    for draft in changes(seed):
        try:
            session = open_session(draft.model)
            first, second = session.run(None, draft.feeds), session.run(None, draft.feeds)
        except Exception:  # whatever onnxruntime raises
            continue
        plain = all(o.type in NUMPY_TYPES for o in session.get_outputs()) and all(np.size(a) <= LARGEST for a in first)
        if plain and all(map(_is_same, first, second)):
            draft.model.doc_string = "; ".join(draft.told)
            return Case(draft.model, [draft.feeds])
    return None
