"""The inference cases of onnx's backend suite, as (name, model, inputs and expected outputs)."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx.numpy_helper as nph
from onnx.backend.test.loader import load_model_tests

import onnx

from ..build_cache import kept_folder

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
TRAINING = ("ai.onnx.preview.training", "ai.onnx.training")


@cache
def all_cases() -> dict[str, Any]:
    """Every inference case by name; those of the training domains (gradients, optimiser steps) are left out."""
    found = {}
    for kind in KINDS:
        for case in _computed() if kind == "node" else load_model_tests(kind=kind):
            if case.model is not None and any(o.domain in TRAINING for o in case.model.opset_import):
                continue
            found[f"{kind}/{case.name}"] = case
    return found


def _computed() -> list[Any]:
    """Cases that onnx computes anew in each process, for seconds: kept between runs as program binaries are."""
    folder = kept_folder()
    path = None if folder is None else folder / f"onnx-{onnx.__version__}-numpy-{np.__version__}.pickle"
    if path is not None:
        with suppress(Exception):  # missing, or not whole
            return cast(list[Any], pickle.loads(path.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps(cases))
            part.replace(path)
    return cases


def load_case(case: Any) -> tuple[Any, Iterator[tuple[list[Any], list[Any]]]]:
    """(ModelProto, data sets as lists of inputs and expected outputs)."""
    if case.model is not None:
        return case.model, _in_memory(case)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    return model, _on_disk(model, folder)


def _in_memory(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    for inputs, outputs in case.data_sets:
        yield [_value(v) for v in inputs], [_value(v) for v in outputs]


def _on_disk(model: Any, folder: Path) -> Iterator[tuple[list[Any], list[Any]]]:
    for data in sorted(folder.glob("test_data_set_*")):
        ins = _read(data, "input", model.graph.input)
        outs = _read(data, "output", model.graph.output)
        yield ins, outs


def _read(folder: Path, what: str, infos: Any) -> list[Any]:
    values = []
    for i in range(len(list(folder.glob(f"{what}_*.pb")))):
        raw = (folder / f"{what}_{i}.pb").read_bytes()
        kind = infos[i].type.WhichOneof("value")
        proto = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(kind, onnx.TensorProto)()
        proto.ParseFromString(raw)
        values.append(_value(proto))
    return values


def _value(v: Any) -> Any:
    if isinstance(v, onnx.TensorProto):
        return nph.to_array(v)
    if isinstance(v, onnx.SequenceProto):
        return nph.to_list(v)
    if isinstance(v, onnx.OptionalProto):
        return nph.to_optional(v)
    return v


def is_float32(model: Any) -> bool:
    """Whether every float tensor of the model's inputs and outputs is float32, and there is one."""
    kinds = set()
    for info in (*model.graph.input, *model.graph.output):
        if info.type.WhichOneof("value") != "tensor_type":
            return False
        kinds.add(info.type.tensor_type.elem_type)
    t = onnx.TensorProto
    return t.FLOAT in kinds and kinds <= {t.FLOAT, t.INT64, t.INT32, t.BOOL}


LOOSER = {"float16": (2e-3, 2e-3), "bfloat16": (1.6e-2, 1.6e-2)}
"""Relative and absolute tolerance of types that round coarsely: two units in the last place of values near one."""


def difference(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    """The first difference as a sentence, or None."""
    if want is None or got is None:
        return None if want is got else f"expected {want}, got {got}"
    if isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return f"expected {len(want)} elements, got {len(got)}"
        found = (difference(g, w, rtol, atol) for g, w in zip(got, want, strict=True))
        return next((f for f in found if f), None)
    want = np.asarray(want)
    got = np.asarray(got)
    if got.shape != want.shape:
        return f"expected shape {want.shape}, got {got.shape}"
    if want.dtype.kind in "OUS":
        return None if np.array_equal(got.astype(str), want.astype(str)) else "strings differ"
    if got.dtype != want.dtype:
        return f"expected {want.dtype}, got {got.dtype}"
    if want.dtype.kind in "biu":
        return None if np.array_equal(got, want) else f"{int(np.sum(got != want))} integers differ"
    coarse = LOOSER.get(want.dtype.name, (0.0, 0.0))
    rtol, atol = max(rtol, coarse[0]), max(atol, coarse[1])
    if want.dtype.kind not in "fc":
        got, want = got.astype(np.float32), want.astype(np.float32)
    with np.errstate(all="ignore"):
        ok = np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if np.all(ok):
        return None
    worst = np.max(np.abs(got.astype(np.complex128) - want)[~ok])
    return f"{int(np.sum(~ok))} of {ok.size} elements differ, by up to {worst:.3g}"
