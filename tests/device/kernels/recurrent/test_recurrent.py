"""LSTM, GRU and RNN against the NumPy reference, and the reference against onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels import kernels_for
from opalite.kernels.kernel import Params, Problem
from opalite.kernels.launch import Launch, Weight
from opalite.kernels.recurrent.persistent_rnn import RnnPersistent
from opalite.ops.recurrent import ACTIVATIONS, FUNCTIONS, GATES

from ....helpers.pairs import pairwise
from ..conv_checks import as_adreno, as_gpu, find_kernel

FORMS = [("lstm", False), ("gru", False), ("gru", True), ("rnn", False)]
"""Kinds of layer, and whether the reset gate comes late."""
NAMES = list(ACTIVATIONS)
DEFAULT = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}


def make_case(kind: str, direction: str, sizes: tuple[int, int, int, int], full: bool, **more: Any) -> tuple[Any, Any]:
    steps, batch, inputs, hidden = sizes
    rng = np.random.default_rng(sum(sizes))
    d = 2 if direction == "bidirectional" else 1
    rows = GATES[kind] * hidden

    def noise(*shape: int) -> Any:
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)

    arrays: list[Any] = [noise(steps, batch, inputs), noise(d, rows, inputs), noise(d, rows, hidden)]
    if full:
        lens = rng.integers(0, steps + 1, batch).astype(np.int32)
        arrays += [noise(d, 2 * rows), lens, noise(d, batch, hidden)]
        arrays += [noise(d, batch, hidden), noise(d, 3 * hidden)] if kind == "lstm" else [None, None]
    else:
        arrays += [None] * 5
    names = more.pop("activations", DEFAULT[kind] * d)
    attrs = {
        "kind": kind,
        "direction": direction,
        "hidden": hidden,
        "activations": names,
        "alphas": (0.3,) * len(names),
        "betas": (0.4,) * len(names),
        "clip": 0.0,
        "linear_before_reset": False,
        "input_forget": False,
        **more,
    }
    return attrs, arrays


def check(
    rt: Runtime,
    attrs: Any,
    arrays: Any,
    tolerance: float = 2e-5,
    const: tuple[int, ...] = (1, 2, 3, 7),
    precision: DType | None = None,
    params: dict[str, int] | None = None,
) -> int:
    """Every kernel (or those that know `params`) gives what the reference does; returns how many there were."""
    node = make_node("Recurrent", attrs, arrays, const=const, precision=precision)
    wanted = node.op.reference(arrays)
    kernels = [k for k in kernels_for("Recurrent") if k.refuse(k.problem(node, rt.info)) is None]
    if params is not None:
        kernels = [
            k for k in kernels if k.space.keys() == params.keys() and not k.illegal(k.problem(node, rt.info), params)
        ]
    for kernel in kernels:
        for got, want in zip(run_node(rt, kernel, node, arrays, params), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=kernel.name)
    return len(kernels)


@pytest.mark.parametrize(
    "kind, direction, full",
    pairwise(["lstm", "gru", "rnn"], ["forward", "reverse", "bidirectional"], [False, True]),
)
def test_directions_and_optional_inputs(rt: Runtime, kind: str, direction: str, full: bool) -> None:
    check(rt, *make_case(kind, direction, (5, 3, 7, 19), full))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 33, 64), (2, 1, 16, 5)])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sizes(rt: Runtime, kind: str, sizes: tuple[int, int, int, int]) -> None:
    check(rt, *make_case(kind, "forward", sizes, True))


def test_variants(rt: Runtime) -> None:
    check(rt, *make_case("gru", "bidirectional", (4, 2, 5, 7), True, linear_before_reset=True))
    check(rt, *make_case("lstm", "forward", (4, 2, 5, 7), True, input_forget=True, clip=0.25))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_closed_gates_leave_zeros(rt: Runtime, kind: str) -> None:
    """A state that is not normal would slow down every product with it."""
    attrs, arrays = make_case(kind, "forward", (3, 2, 5, 17), False, activations=("Sigmoid",) * FUNCTIONS[kind])
    hidden = attrs["hidden"]
    arrays[0][:], arrays[1][:], arrays[2][:] = 1, 0, 0
    bias = np.zeros((1, 2 * GATES[kind] * hidden), np.float32)
    bias[0, : GATES[kind] * hidden] = -95  # a sigmoid of 5.5e-42
    arrays[3] = bias
    node = make_node("Recurrent", attrs, arrays, const=(1, 2, 3))
    assert 0 < np.abs(node.op.reference(arrays)[0]).max() < 1e-38
    (kernel,) = [k for k in kernels_for("Recurrent") if k.name == "RnnUnitBlocks"]
    for got in run_node(rt, kernel, node, arrays):
        assert not got.any()


def test_weights_that_are_not_constant(rt: Runtime) -> None:
    assert check(rt, *make_case("gru", "bidirectional", (4, 2, 5, 7), True), const=())


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_half_storage(rt: Runtime, kind: str) -> None:
    check(rt, *make_case(kind, "bidirectional", (4, 2, 5, 19), True), tolerance=1e-2, precision=DType.FLOAT16)


@pytest.mark.parametrize(
    "form, direction, split, dtype",
    pairwise(FORMS, ["forward", "bidirectional"], [1, 2], [DType.FLOAT32, DType.FLOAT16]),
)
def test_weights_read_as_texels(rt: Runtime, form: tuple[str, bool], direction: str, split: int, dtype: DType) -> None:
    """On an Adreno, in the same kernel; an odd number of units leaves half a texel of halves empty."""
    kind, late = form
    attrs, arrays = make_case(kind, direction, (3, 3, 5, 67), True, linear_before_reset=late)
    node = make_node("Recurrent", attrs, arrays, const=(1, 2, 3, 7), precision=dtype)
    kernel, adreno = find_kernel("Recurrent", "RnnUnitBlocks"), as_adreno(rt)
    params = {"SPLIT": split, "NB": 2, "LX": 32, "LY": 4}
    *products, walk = kernel.launch(kernel.problem(node, adreno.info), params)
    assert walk.defines["TEXELS"]
    assert split > 1 or any(isinstance(a, Weight) and a.image for one in products for a in one.args.values())
    assert "TEXELS" not in kernel.launch(kernel.problem(node, as_gpu(rt).info), params)[-1].defines
    assert walk.args["r"].fn(arrays[2]).dtype == np.uint32
    tolerance = 2e-5 if dtype is DType.FLOAT32 else 1e-2
    for got, want in zip(run_node(adreno, kernel, node, arrays, params), node.op.reference(arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_double(rt: Runtime, kind: str) -> None:
    if not rt.info.fp64:
        pytest.skip("no double precision")
    attrs, arrays = make_case(kind, "bidirectional", (4, 2, 5, 19), True)
    check(rt, attrs, [a if i == 4 or a is None else a.astype(np.float64) for i, a in enumerate(arrays)], 1e-12)


@pytest.mark.parametrize("sizes", [(0, 2, 5, 7), (3, 0, 5, 7)])
def test_no_steps_and_no_sequences(rt: Runtime, sizes: tuple[int, int, int, int]) -> None:
    check(rt, *make_case("lstm", "forward", sizes, True))


@pytest.mark.parametrize(
    "form, full, nb",
    pairwise([("lstm", "bidirectional"), ("gru", "reverse"), ("rnn", "forward")], [False, True], [2, 4]),
)
def test_sequences_that_share_weights(rt: Runtime, form: tuple[str, str], full: bool, nb: int) -> None:
    kind, direction = form
    items = {"LX": 1, "LY": 1} if rt.info.is_cpu else {"LX": 32, "LY": 4}
    case = make_case(kind, direction, (5, 7, 3, 37), full)
    assert check(rt, *case, params={"SPLIT": 1, "NB": nb, **items})


@pytest.mark.parametrize(
    "form, direction, steps, full", pairwise(FORMS, ["reverse", "bidirectional"], [1, 2, 5], [False, True])
)
def test_units_shared_among_groups(rt: Runtime, form: tuple[str, bool], direction: str, steps: int, full: bool) -> None:
    """Also sequences that end in the middle of a batch, and gates that all units have to know before a step ends."""
    kind, late = form
    items = {"LX": 1, "LY": 1} if rt.info.is_cpu else {"LX": 32, "LY": 4}
    attrs, arrays = make_case(kind, direction, (steps, 3, 5, 67), full, linear_before_reset=late)
    assert check(rt, attrs, arrays, params={"SPLIT": 2, "NB": 2, **items})


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_shared_states_are_not_rounded_to_halves(rt: Runtime, kind: str) -> None:
    """What a launch leaves for the next is float32: 40 steps are as right as one."""
    items = {"LX": 1, "LY": 1} if rt.info.is_cpu else {"LX": 32, "LY": 4}
    attrs, arrays = make_case(kind, "bidirectional", (40, 2, 5, 67), True)
    node = make_node("Recurrent", attrs, arrays, const=(1, 2, 3, 7), precision=DType.FLOAT16)
    kernel = next(k for k in kernels_for("Recurrent") if k.name == "RnnUnitBlocks")
    answers = [run_node(rt, kernel, node, arrays, {"SPLIT": s, "NB": 1, **items}) for s in (1, 2)]
    for walked, shared in zip(*answers, strict=True):
        np.testing.assert_allclose(walked, shared, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    "walk, form, direction, full",
    pairwise(["meet", "launches", "alone"], FORMS, ["reverse", "bidirectional"], [False, True]),
)
def test_weights_spread_over_groups(rt: Runtime, walk: str, form: tuple[str, bool], direction: str, full: bool) -> None:
    """Sequences of several lengths, more than a group serves, and units that the last group has only some of."""
    kind, late = form
    attrs, arrays = make_case(kind, direction, (5, 3, 5, 67), full, linear_before_reset=late)
    params = {"WALK": walk, "BLOCK": 8, "WAYS": 4, "NB": 2, "HELD": walk == "meet"}
    count = check(rt, attrs, arrays, params=params)
    if walk == "meet" and not count:
        pytest.skip("groups of this device are not known to run at once")
    assert count == 1


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_weights_in_registers_or_read_at_each_step(rt: Runtime, held: bool, dtype: str) -> None:
    if dtype == "float64" and not rt.info.fp64:
        pytest.skip("no double precision")
    attrs, arrays = make_case("lstm", "forward", (40, 2, 5, 67), True)
    half = DType.FLOAT16 if dtype == "float16" else None
    if half is None:
        arrays = [a if i == 4 or a is None else a.astype(dtype) for i, a in enumerate(arrays)]
    params = {"WALK": "meet", "BLOCK": 4, "WAYS": 8, "NB": 2, "HELD": held}
    tolerance = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2}[dtype]
    if not check(rt, attrs, arrays, tolerance, precision=half, params=params):
        pytest.skip("groups of this device are not known to run at once")


def test_a_layer_whose_groups_did_not_meet_is_computed_again(rt: Runtime) -> None:
    """The launch that repairs does so if somebody has waited in vain, and else leaves what it finds."""
    attrs, arrays = make_case("lstm", "bidirectional", (4, 3, 5, 19), True)
    node = make_node("Recurrent", attrs, arrays, const=(1, 2, 3, 7))
    wanted = node.op.reference(arrays)
    for failed in (0, 1):
        got = run_node(
            rt, _Repairs(failed), node, arrays, {"WALK": "meet", "BLOCK": 4, "WAYS": 2, "NB": 2, "HELD": False}
        )
        for a, b in zip(got, wanted, strict=True):
            assert np.allclose(a, b, 2e-5, 2e-5) is bool(failed)


class _Repairs(RnnPersistent):
    """All launches but the one that meets, which `failed` stands for."""

    def __init__(self, failed: int) -> None:
        self._failed = failed

    def illegal(self, p: Problem, params: Params) -> str | None:
        return None

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        launches = super().launch(p, params)
        assert launches[-1].defines["REPAIRS"]
        assert launches[-2].defines["MEETS"]
        begin = launches[-3]
        begin = replace(begin, args={**begin.args, "failed": np.uint32(self._failed)})
        return [*launches[:-3], begin, launches[-1]]


@pytest.mark.parametrize("names", list(zip(NAMES[::2], [*NAMES[1::2], NAMES[0]], strict=True)))
def test_activations(rt: Runtime, names: tuple[str, str]) -> None:
    """One in each direction."""
    check(rt, *make_case("rnn", "bidirectional", (3, 2, 5, 7), True, activations=names))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_the_reference_agrees_with_onnxruntime(kind: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    helper = pytest.importorskip("onnx").helper
    attrs, arrays = make_case(kind, "bidirectional", (5, 3, 7, 11), True)
    names = ["x", "w", "r", "b", "lens", "h0", *(["c0", "p"] if kind == "lstm" else [])]
    feeds = {n: a for n, a in zip(names, arrays, strict=False) if a is not None}
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    outs = ["y", "yh", "yc"][: FUNCTIONS[kind] if kind == "lstm" else 2]
    node = helper.make_node(kind.upper(), names, outs, hidden_size=11, direction="bidirectional")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(n, 1, None) for n in outs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for got, want in zip(
        make_node("Recurrent", attrs, arrays).op.reference(arrays), session.run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_state_rounded_to_8_bits(rt: Runtime, direction: str, batch: int) -> None:
    """By the range of all sequences, those that have ended counted as zeros."""
    attrs, arrays = make_case("lstm", direction, (7, batch, 5, 19), full=True, rounds_state=True)
    # A level of the state is 1/255 of its range: where sums round to the other side of a half, results differ by it.
    assert check(rt, attrs, arrays, tolerance=2e-3) == (2 if batch == 1 else 1)
