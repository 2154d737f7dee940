"""Options, notices and severities; tensors by DLPack."""

from __future__ import annotations

import gc
import logging
import pickle
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.errors import BindingError, InputTypeError, OptionError, UnsupportedApiError
from opalite.ir.dtype import DType
from opalite.ir.model_edits import ModelEdits
from opalite.run.api.diagnostics.ort_logging import SessionLog, set_default_logger_severity, warn_once
from opalite.run.api.options.session_options import log_no_effect, parse_edits
from opalite.run.api.values import dlpack


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    level = logging.getLogger("opalite").level
    caplog.handler.setLevel(logging.NOTSET)
    logging.getLogger("opalite").addHandler(caplog.handler)
    yield lambda: [r.getMessage() for r in caplog.records]
    logging.getLogger("opalite").removeHandler(caplog.handler)
    logging.getLogger("opalite").setLevel(level)


def test_options_without_effect_are_logged_once(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opalite.run.api.diagnostics.ort_logging._noticed", set())
    set_default_logger_severity(2)
    options = opalite.SessionOptions()
    options.intra_op_num_threads = 3
    options.enable_mem_pattern = True  # the default
    options.add_session_config_entry("session.something", "1")
    for _ in range(3):
        log_no_effect(options, SessionLog())
    said = set(told())
    assert len(said) == 2
    assert any("intra_op_num_threads has no effect: the OpenCL driver decides" in s for s in said)
    assert any("'session.something' has no effect" in s for s in said)


def test_severities(told: Any) -> None:
    for severity, want in ((4, []), (3, ["error"]), (2, ["warning", "error"]), (0, ["debug", "warning", "error"])):
        set_default_logger_severity(severity)
        before = len(told())
        for level, text in ((logging.DEBUG, "debug"), (logging.WARNING, "warning"), (logging.ERROR, "error")):
            SessionLog().log(level, text)
        assert list(dict.fromkeys(told()[before:])) == want
    set_default_logger_severity(4)
    SessionLog(0, "mine").log(logging.DEBUG, "a session's own severity counts")
    assert told()[-1] == "[mine] a session's own severity counts"
    warn_once("a test's own", "fatal alone is told")
    assert "fatal alone is told" not in told()


def test_edits_have_a_digest() -> None:
    options = opalite.SessionOptions()
    assert parse_edits(options).digest() == ""
    seen = {""}
    options.add_free_dimension_override_by_name("n", 3)
    seen.add(parse_edits(options).digest())
    options.add_initializer("w", opalite.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    seen.add(parse_edits(options).digest())
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/somewhere")
    seen.add(parse_edits(options).digest())
    options.add_session_config_entry("opalite.last_position", "logits, others")
    assert parse_edits(options).last == ("logits", "others")
    seen.add(parse_edits(options).digest())
    assert len(seen) == 5
    assert ModelEdits(initializers={"w": np.ones(2)}).digest() != ModelEdits(external={"v": np.ones(2)}).digest()


def test_options_are_pickled() -> None:
    options = opalite.SessionOptions()
    options.logid = "mine"
    options.add_free_dimension_override_by_name("n", 3)
    options.add_session_config_entry("key", "value")
    found = pickle.loads(pickle.dumps(options))
    assert (found.logid, parse_edits(found).dims, found.get_session_config_entry("key")) == ("mine", {"n": 3}, "value")


def test_models_in_ort_format_are_refused() -> None:
    options = opalite.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(UnsupportedApiError, match="give the ONNX file"):
        log_no_effect(options, SessionLog())


@pytest.mark.parametrize("size", [1.5, "3", None])
def test_sizes_are_whole_numbers(size: Any) -> None:
    with pytest.raises(InputTypeError, match="the size of 'n' is a whole number"):
        opalite.SessionOptions().add_free_dimension_override_by_name("n", size)


def test_lengths_of_external_data_fit() -> None:
    with pytest.raises(OptionError, match="2 names of initializers, but 0 values"):
        opalite.SessionOptions().add_external_initializers(["a", "b"], [])


# DLPack


@pytest.mark.parametrize("dtype", [*"bhilBHIL?efd", "complex64", DType.BFLOAT16.np, DType.FLOAT8E5M2.np], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5), (2, 0, 3)], ids=str)
def test_dlpack_round_trip(dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    found = dlpack.from_capsule(dlpack.to_capsule(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    assert array.size == 0 or found.ctypes.data == array.ctypes.data


@pytest.mark.parametrize("dtype", [DType.INT4, DType.UINT4, DType.INT2, DType.UINT2, DType.FLOAT4E2M1], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5), (2, 0, 3)], ids=str)
def test_dlpack_round_trip_of_packed_types(dtype: DType, shape: tuple[int, ...]) -> None:
    """An odd number of elements leaves a byte that is not full."""
    low, high = (-6, 7) if dtype is DType.FLOAT4E2M1 else (0 if dtype.short[0] == "u" else -2, 2)
    array = np.resize(np.arange(low, high), shape).astype(dtype.np)
    lent = len(dlpack._exported)
    found = dlpack.from_capsule(dlpack.to_capsule(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found.astype(np.float32), array.astype(np.float32))
    gc.collect()
    assert len(dlpack._exported) == lent, "a copy needs the memory no more"


def test_the_first_packed_element_is_in_the_lowest_bits() -> None:
    packed = dlpack._packed(np.array([1, -1, 7], DType.INT4.np), 4)
    np.testing.assert_array_equal(packed, np.array([0xF1, 0x07], np.uint8))


def test_dlpack_keeps_and_frees_memory() -> None:
    lent = len(dlpack._exported)
    capsule = dlpack.to_capsule(np.arange(5.0))
    assert len(dlpack._exported) == lent + 1
    del capsule  # nobody took it
    gc.collect()
    assert len(dlpack._exported) == lent
    found = dlpack.from_capsule(dlpack.to_capsule(np.arange(1000.0)))
    view = found[10:20]
    del found
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(10.0, 20.0))
    del view
    gc.collect()
    assert len(dlpack._exported) == lent


def test_a_read_only_array_is_exported() -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    np.testing.assert_array_equal(dlpack.from_capsule(dlpack.to_capsule(array)), array)


def test_a_capsule_is_taken_once() -> None:
    capsule = dlpack.to_capsule(np.arange(4.0))
    dlpack.from_capsule(capsule)
    with pytest.raises(InputTypeError, match="a valid DLPack capsule named 'dltensor'"):
        dlpack.from_capsule(capsule)


def test_types_that_dlpack_lacks() -> None:
    for array in (np.array(["a"], object), np.zeros(2, ">f4"), np.zeros(2, DType.FLOAT6E2M3.np)):
        with pytest.raises(BindingError, match="DLPack does not support"):
            dlpack.to_capsule(array)


def test_every_error_is_one_of_onnxruntime() -> None:
    from opalite import errors, status

    codes = tuple(c for c in vars(status).values() if isinstance(c, type) and issubclass(c, Exception))
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, opalite.OpaliteError) and kind is not opalite.OpaliteError:
            assert issubclass(kind, codes), kind
