"""Weights that are there in a kernel's form are found by the next plan, and no others are."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
from onnx import helper
from opalite.ir.constants.lazy_array import LARGE, LazyArray, content_info, content_key, converted, pin_all, reshaped
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.device.device_info import DeviceInfo
from opalite.ir.dtype import DType
from opalite.ir.graph import Value
from opalite.ir.place import FLAT, IMAGE, Place, Target, packed
from opalite.ir.precision import PrecisionPolicy
from opalite.ir.tensor_type import TensorType
from opalite.kernels.launch import Weight
from opalite.plan.planner import Knowledge, Planned, PlanOptions, plan
from opalite.plan.weights.packed_weights import Form, placed_form, weight_form
from opalite.run.model.imported_model import ImportedModel

from ....helpers.small_models import make_model, noise, port

SIDE = 512
assert SIDE * SIDE >= LARGE


def stored(array: np.ndarray[Any, Any] | None = None) -> LazyArray:
    array = np.zeros((SIDE, SIDE), np.float32) if array is None else array
    return LazyArray(array.dtype, array.shape, array.copy)


def value(held: Any, place: Place | None = None) -> Value:
    return Value("w", TensorType(DType.of(held.dtype), tuple(held.shape), place or Place(Target.OPENCL)), held)


def same(data: Any) -> Any:
    return data


# What is held on the host


def test_what_is_held_is_found_and_what_is_not_is_made() -> None:
    source = value(stored())
    made: list[Any] = []

    def make(data: Any) -> Any:
        made.append(1)
        return data + len(made)

    held = weight_form(Weight(source, "one", make)).made()
    assert weight_form(Weight(source, "one", make)).made() is held
    assert weight_form(Weight(source, "other", make)).made()[0, 0] == 2
    del held
    assert weight_form(Weight(source, "one", make)).made()[0, 0] == 3
    small = value(LazyArray(np.dtype(np.float32), (2,), lambda: np.zeros(2, np.float32)))
    kept = weight_form(Weight(small, "one", make)).made()
    assert weight_form(Weight(small, "one", make)).made() is not kept
    array = value(np.zeros((SIDE, SIDE), np.float32))
    kept = weight_form(Weight(array, "one", make)).made()
    assert weight_form(Weight(array, "one", make)).made() is not kept  # it may be changed


def test_plans_for_many_rows_and_for_one_hold_weights_once(tmp_path: Path) -> None:
    """The prompt's plan and the next tokens' of a decoder."""
    device = read_description("pocl_avx512")
    columns = 3 * device.pack * 8 * device.compute_units
    onnx.save(product_model(256, columns), tmp_path / "one.onnx")
    imported, arrays = ImportedModel(tmp_path / "one.onnx"), []
    for rows in (64, 1):
        segment = imported.fresh().only_segment({"x": noise(rows, 256)})
        program = plan(segment.graph, PlanOptions(), Knowledge(device)).program
        arrays.append(next(iter(program.weights.values())))
    assert arrays[0] is arrays[1]


# What names a form


def keys_of(*forms: Form) -> int:
    """How many different things they are."""
    assert all(form.key is not None for form in forms)
    return len({form.key for form in forms})


def test_a_source_has_a_key_of_its_own() -> None:
    first, second = stored(), stored()  # equal contents, which nobody has looked at
    assert keys_of(*(weight_form(Weight(value(s), "one", same)) for s in (first, second, first))) == 2
    assert keys_of(*(placed_form(value(s)) for s in (first, second, first))) == 2
    views = (first, reshaped(first, (SIDE // 2, 2 * SIDE)), converted(first, np.float16), converted(first, np.float64))
    assert keys_of(*(weight_form(Weight(value(s), "one", same)) for s in views)) == 4
    assert weight_form(Weight(value(np.zeros((SIDE, SIDE))), "one", same)).key is None


def test_all_that_decides_the_bytes_is_part_of_the_key() -> None:
    held = stored()
    plain, half = value(held), value(held, Place(Target.OPENCL, FLAT, DType.FLOAT16))
    weights = [
        Weight(plain, "one", same),
        Weight(plain, "two", same),
        Weight(half, "one", same),
        Weight(plain, "one", same, image=True),
        Weight(plain, "one", same, by_slices=True),
        Weight(plain, "one", lambda data: data),  # another kernel's, which has the same name for it
    ]
    assert keys_of(*map(weight_form, weights)) == len(weights)
    again = Weight(value(held), "one", same)  # another plan's value
    assert weight_form(again).key == weight_form(weights[0]).key
    places = [Place(Target.OPENCL), Place(Target.OPENCL, FLAT, DType.FLOAT16), Place(Target.OPENCL, IMAGE)]
    places += [Place(Target.OPENCL, packed(8)), Place(Target.OPENCL, packed(16))]
    assert keys_of(*(placed_form(value(held, place)) for place in places), weight_form(weights[0])) == 6


def test_a_form_made_once_tells_its_size_to_the_next() -> None:
    """Where a kernel does not say it beforehand."""
    held = stored()
    first = weight_form(Weight(value(held), "halves", lambda data: data.astype(np.float16)))
    assert first.stored() is None
    kept = first.stored(first.made())
    assert kept is not None

    def again() -> Form:
        return weight_form(Weight(value(held), "wide", wide))

    wide: Callable[[Any], Any] = np.float64
    assert again().stored() is None
    wide_kept = again().stored(again().made())
    assert wide_kept is not None
    later = again().stored()
    assert later is not None
    assert (later.dtype, later.shape) == (np.float64, (SIDE, SIDE))
    key = later.key
    del later, wide_kept
    gc.collect()
    assert content_info(key).kind is None  # nobody holds it any more


# Plans


def product_model(rows: int, columns: int, seed: int = 1) -> onnx.ModelProto:
    return make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [port("x", ("rows", rows))],
        [port("y", ("rows", columns))],
        {"w": noise(rows, columns, seed=seed)},
    )


def late_weights(imported: ImportedModel, rows: int, device: DeviceInfo, **options: Any) -> Planned:
    segment = imported.fresh().only_segment({"x": noise(rows, 768)})
    return plan(segment.graph, PlanOptions(late_weights=True, **options), Knowledge(device))


def late_keys(planned: Planned) -> set[Any]:
    return {w.key for w in planned.program.weights.values() if isinstance(w, LazyArray)}


@pytest.mark.parametrize("device", ["pocl_avx512", "nvidia_h200", "amd_rx_6800", "adreno_640"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_equal_keys_are_equal_bytes(device: str, precision: str, tmp_path: Path) -> None:
    """Plans of one model for a few rows, many and one, in both tiers, in two precisions."""
    info = read_description(device)
    onnx.save(product_model(768, 2048), tmp_path / "one.onnx")
    imported, found = ImportedModel(tmp_path / "one.onnx"), dict[Any, str]()
    shared, held = 0, []
    for tier in ("optimized", "generic"):
        for precise in ("fp32", precision):
            for rows in (16, 128, 2048, 1, 16):
                policy = PrecisionPolicy.named(precise)
                planned = late_weights(imported, rows, info, policy=policy, tier=tier)
                held.append(planned)
                for weight in planned.program.weights.values():
                    if isinstance(weight, LazyArray):
                        weight.unpin()
                        shared += weight.key in found
                        digest = content_key(weight.read())
                        assert found.setdefault(weight.key, digest) == digest
    assert len(set(found.values())) == len(found) >= 1, "one array has two keys"
    assert shared >= 10


def test_models_do_not_share_keys(tmp_path: Path) -> None:
    """Nor do two that were imported of one file, which may have changed."""
    info = read_description("pocl_avx512")
    onnx.save(product_model(768, 2048), tmp_path / "one.onnx")
    first, second = (late_weights(ImportedModel(tmp_path / "one.onnx"), 16, info) for _ in range(2))
    assert late_keys(first)
    assert not late_keys(first) & late_keys(second)


@pytest.mark.parametrize("kind", ["file", "data file", "bytes"])
def test_wherever_a_model_lies_its_weights_are_known(kind: str, tmp_path: Path) -> None:
    info = read_description("pocl_avx512")
    model, path = product_model(768, 2048), tmp_path / "one.onnx"
    apart = {"save_as_external_data": True, "location": "one.data", "size_threshold": 0} if kind == "data file" else {}
    raw = model.SerializeToString()
    onnx.save(model, path, **apart)
    imported = ImportedModel(raw if kind == "bytes" else path)
    keys = [late_keys(late_weights(imported, 16, info)) for _ in range(2)]
    assert keys[0]
    assert keys[0] == keys[1]


def test_what_is_elsewhere_is_not_read() -> None:
    reads: list[int] = []

    def load(number: int) -> np.ndarray[Any, Any]:
        reads.append(number)
        return np.full(4, number)

    first, second = (LazyArray(np.dtype(int), (4,), lambda n=n: load(n)) for n in (1, 2))  # type: ignore[misc]
    pin_all([first, np.zeros(3), second, first], is_elsewhere=lambda a: a is second)
    assert reads == [1]
    gc.collect()
    assert first.read()[0] == 1
    assert reads == [1]
    first.unpin()
    gc.collect()
    first.read()
    assert reads == [1, 1]
