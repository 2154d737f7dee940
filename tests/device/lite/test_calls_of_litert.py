"""Calls in the orders and with the values of ported programs: results and kinds of errors are LiteRT's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opalite.lite.interpreter as own
from opalite.errors import OptionError
from opalite.lite import load_delegate

from ...helpers.tflite_files import TfliteFile

other = pytest.importorskip("ai_edge_litert.interpreter")
F = np.float32
X = np.array([1, 2], F)


def model() -> bytes:
    """-x and its exponential; a signature of this, and one of a second subgraph: a + b and a * b."""
    file = TfliteFile()
    main, second = file.main, file.subgraph("second")
    x, minus, y = main.input(F, (2,), "x"), main.tensor(F, (2,), "minus"), main.tensor(F, (2,), "y")
    main.op("NEG", [x], [minus])
    main.op("EXP", [minus], [y])
    main.output(y, x)
    a, b = second.input(F, (2,), "a"), second.input(F, (2,), "b")
    total, product = second.tensor(F, (2,), "total"), second.tensor(F, (2,), "product")
    second.op("ADD", [a, b], [total], "AddOptions")
    second.op("MUL", [a, b], [product], "MulOptions")
    second.output(product, total)
    file.signature("exp", {"x": x}, {"y": y, "same": x})
    file.signature("pair", {"b": b, "a": a}, {"sum": total, "product": product}, 1)
    return file.bytes()


MODEL = model()
Call = Callable[[Any, Any], Any]


def pair(i: Any, a: Any = X, b: Any = X + 2) -> Any:
    return i.get_signature_runner("pair")(a=a, b=b)


def again(i: Any) -> Any:
    i.set_tensor(0, X)
    i.invoke()
    return i.get_tensor(2), i.get_tensor(0)


CALLS: dict[str, Call] = {
    "an input that is an output": lambda m, i: (i.set_tensor(0, X), again(i), i.set_tensor(0, X * 2), again(i)),
    "another number of dimensions": lambda m, i: (
        i.resize_tensor_input(0, [3, 1, 2]),
        i.allocate_tensors(),
        i.set_tensor(0, np.ones((3, 1, 2), F)),
        i.invoke(),
        i.get_tensor(2),
        [d["shape"] for d in i.get_output_details()],
    ),
    "and back": lambda m, i: (
        i.resize_tensor_input(0, np.int64([4, 2])),
        i.allocate_tensors(),
        i.resize_tensor_input(0, (2,)),
        i.allocate_tensors(),
        again(i),
    ),
    "a number for sizes": lambda m, i: i.resize_tensor_input(0, 3),
    "sizes of sizes": lambda m, i: i.resize_tensor_input(0, [[1, 2]]),
    "the same sizes": lambda m, i: (i.resize_tensor_input(0, [2]), again(i)),
    "a resized input has no contents": lambda m, i: (i.resize_tensor_input(0, [3]), i.get_tensor(0)),
    "set before allocated": lambda m, i: (i.resize_tensor_input(0, [3]), i.set_tensor(0, np.ones(3, F))),
    "a signature's results": lambda m, i: list(pair(i).items()),
    "in the order of names": lambda m, i: list(i.get_signature_runner("pair").get_input_details()),
    "another size": lambda m, i: (pair(i, X[:1], X[:1]), pair(i)),
    "sizes that do not fit": lambda m, i: pair(i, np.ones(3, F)),
    "another type": lambda m, i: pair(i, X.astype(int)),
    "tensors of a subgraph that ran": lambda m, i: (pair(i), i.get_tensor(2, 1), i.get_tensor(0, 1)),
    "a signature of the first subgraph": lambda m, i: (
        i.get_signature_runner("exp")(x=X + 1),
        i.get_tensor(2),
        i.get_tensor(0),
        again(i),
    ),
    "no such key": lambda m, i: i.get_signature_runner("none"),
    "which of two": lambda m, i: i.get_signature_runner(),
    "the operators": lambda m, i: m.Interpreter(
        model_content=MODEL, experimental_op_resolver_type=m.OpResolverType.BUILTIN_REF
    )._get_ops_details(),
    "a resolver": lambda m, i: m.Interpreter(model_content=MODEL, experimental_op_resolver_type=1),
    "a path that is a number": lambda m, i: m.Interpreter(model_path=5),
    "bytes for a path": lambda m, i: m.Interpreter(model_path=b"/no/such/file"),
    "the compression": lambda m, i: i.experimental_compress_quantization_zero_points,
    "custom operators": lambda m, i: m.InterpreterWithCustomOps(model_content=MODEL).num_subgraphs(),
}


def outcome(call: Call, module: Any) -> Any:
    i = module.Interpreter(model_content=MODEL)
    i.allocate_tensors()
    try:
        return call(module, i)
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str) -> None:
    found, wanted = (outcome(CALLS[name], m) for m in (own, other))
    if isinstance(wanted, str):
        assert found == wanted
    np.testing.assert_equal(_rounded(found), _rounded(wanted))


def _rounded(v: Any) -> Any:
    """Floats to five digits: exponentials differ in the last bit."""
    if isinstance(v, (list, tuple)):
        return [_rounded(each) for each in v]
    if isinstance(v, dict):
        return {key: _rounded(each) for key, each in v.items()}
    return np.round(v, 5) if isinstance(v, (np.ndarray, np.floating)) and v.dtype.kind == "f" else v


def test_preserved_tensors() -> None:
    i = own.Interpreter(model_content=MODEL, experimental_preserve_all_tensors=True)
    i.allocate_tensors()
    with pytest.raises(ValueError, match=r"'minus'.*once invoked"):
        i.get_tensor(1)
    again(i)
    assert i.get_tensor(1).tolist() == [-1, -2]
    assert i.get_tensor(2) == pytest.approx(np.exp([-1, -2]))
    pair(i)
    assert i.get_tensor(0, 1).tolist() == [1, 2]


def test_the_state_of_an_operator() -> None:
    """It is read and set as a tensor, and begins anew with other sizes and by reset_all_variables."""
    file, rng = TfliteFile(), np.random.default_rng(0)
    x, state = file.main.input(F, (1, 3), "x"), file.main.tensor(F, (1, 20), "state", variable=True)
    weights = [file.main.constant(rng.random(shape).astype(F)) for shape in ((4, 3), (4, 5), (4,))]
    y = file.main.tensor(F, (1, 4), "y")
    file.main.op("SVDF", [x, *weights, state], [y], "SVDFOptions", rank=1, fusedActivationFunction=0)
    file.main.output(y)
    found = []
    for module in (own, other):
        i = module.Interpreter(model_content=file.bytes())
        i.allocate_tensors()
        seen = []

        def step(i: Any = i, seen: Any = seen) -> None:
            i.set_tensor(x, np.ones((1, 3), F))
            i.invoke()
            seen.extend((i.get_tensor(y), i.get_tensor(state)))

        step()
        i.allocate_tensors()  # of the same sizes
        step()
        i.set_tensor(state, np.full((1, 20), 0.5, F))
        step()
        i.reset_all_variables()
        step()
        i.resize_tensor_input(x, [2, 3])
        with pytest.raises(RuntimeError, match="state"):
            i.allocate_tensors()
        i.resize_tensor_input(x, [1, 3])
        i.allocate_tensors()
        step()
        found.append(seen)
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_scalar_is_numpys_number() -> None:
    file = TfliteFile()
    x, y = file.main.input(F, (), "x"), file.main.tensor(F, (), "y")
    file.main.op("NEG", [x], [y])
    file.main.output(y)
    file.signature("neg", {"x": x}, {"y": y})
    i = own.Interpreter(model_content=file.bytes())
    assert type(i.get_signature_runner()(x=F(3))["y"]) is type(i.get_tensor(1)) is F
    assert i.get_tensor(1) == -3


def test_an_array_of_the_other_byte_order() -> None:
    i = own.Interpreter(model_content=MODEL)
    i.allocate_tensors()
    i.set_tensor(0, X.astype(">f4"))
    assert i.get_tensor(0).tolist() == [1, 2]


@pytest.mark.parametrize("kind", [ValueError, OSError])
def test_a_missing_delegate_is_either_error(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="leave delegates out"):
        load_delegate("libedgetpu.so.1", {"device": "usb"})


def test_registerers_are_refused() -> None:
    with pytest.raises(OptionError, match=r"'Register'.*opalite.kernel"):
        own.InterpreterWithCustomOps(["Register"], model_content=MODEL)
