"""Config, predictors and handles as programs for Paddle Inference use them; sessions and bundles of Paddle's files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opalite
from opalite import paddle_inference
from opalite.errors import InputError, ModelFileError, OptionError
from opalite.paddle_inference import Config, DataType, PrecisionType, create_predictor
from tests.helpers.paddle_files import PaddleProgram, combined

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(12, dtype=np.float32).reshape(3, 4)


def program() -> PaddleProgram:
    """y = relu(x W), of any batch."""
    made = PaddleProgram({"x": X}, {"w": W}, shapes={"x": (-1, 3)})
    return made.op("matmul", {"X": ["x"], "Y": ["w"]}, {"Out": ["t"]}).op("relu", {"X": ["t"]}, {"Out": ["y"]})


def test_a_predictor_runs_as_in_paddle(tmp_path: Path) -> None:
    path = program().write(tmp_path, "pdmodel")
    config = Config(str(path), str(tmp_path / "inference.pdiparams"))
    config.disable_gpu()
    config.enable_memory_optim()
    config.disable_glog_info()
    config.delete_pass("conv_transpose_eltwiseadd_bn_fuse_pass")
    config.switch_use_feed_fetch_ops(False)
    config.switch_ir_optim(True)
    config.set_cpu_math_library_num_threads(2)
    assert (config.use_gpu(), config.cpu_math_library_num_threads(), config.glog_info_disabled()) == (False, 2, True)
    predictor = create_predictor(config)
    assert predictor.get_input_names() == ["x"]
    assert predictor.get_output_names() == ["y"]
    assert predictor.get_input_tensor_shape() == {"x": [-1, 3]}
    handle, out = predictor.get_input_handle("x"), predictor.get_output_handle("y")
    for rows in (2, 5):  # handles stay, sizes change
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        handle.reshape([rows, 3])
        handle.copy_from_cpu(x)
        assert predictor.run()
        np.testing.assert_allclose(out.copy_to_cpu(), np.maximum(x @ W, 0), rtol=1e-5, atol=1e-5)
        assert (out.shape(), out.lod(), out.type()) == ([rows, 4], [], DataType.FLOAT32)
    assert predictor.try_shrink_memory() == 0
    predictor.clear_intermediate_tensor()
    (listed,) = predictor.run([X])
    np.testing.assert_allclose(listed.copy_to_cpu(), X @ W)


def test_folders_pir_other_names_and_contents(tmp_path: Path) -> None:
    program().write(tmp_path, "pir")
    other = tmp_path / "weights"
    other.mkdir()
    (other / "any.bin").write_bytes(combined({"w": W + 1}))
    raw = program().pir()
    memory = Config()
    memory.set_model_buffer(raw, len(raw), combined({"w": W}), len(combined({"w": W})))
    configs = [(Config(str(tmp_path)), W), (Config(str(tmp_path / "inference.json"), str(other / "any.bin")), W + 1)]
    for config, weights in (*configs, (memory, W)):
        predictor = create_predictor(config)
        predictor.get_input_handle("x").share_external_data(X)
        predictor.run()
        np.testing.assert_allclose(predictor.get_output_handle("y").copy_to_cpu(), X @ weights)


def test_clones_and_pools_have_handles_of_their_own(tmp_path: Path) -> None:
    program().write(tmp_path, "pdmodel")
    pool = paddle_inference.PredictorPool(Config(str(tmp_path)), 2)
    first, second = pool.retrieve(0), pool.retrieve(1)
    first.get_input_handle("x").copy_from_cpu(X)
    second.get_input_handle("x").copy_from_cpu(X[:1])
    assert first.run()
    assert second.run()
    assert first.get_output_handle("y").shape() == [2, 4]
    assert second.get_output_handle("y").shape() == [1, 4]


def test_what_cannot_be_kept_is_refused_in_words(tmp_path: Path) -> None:
    config = Config(str(program().write(tmp_path, "pdmodel")))
    for call, said in (("enable_tensorrt_engine", "another engine"), ("enable_xpu", "XPU")):
        with pytest.raises(OptionError, match=said):
            getattr(config, call)(1 << 30)
    with pytest.raises(OptionError, match=r"Float32 or Half here, got Int8"):
        config.enable_use_gpu(100, 0, PrecisionType.Int8)
    with pytest.raises(AttributeError, match="no setting 'enable_nothing'"):
        config.enable_nothing()
    with pytest.raises(OptionError, match="names no model"):
        create_predictor(Config())
    predictor = create_predictor(config)
    with pytest.raises(InputError, match="the program has no input 'z'; it has x"):
        predictor.get_input_handle("z")
    with pytest.raises(InputError, match="'x' has no contents"):
        predictor.run()
    with pytest.raises(TypeError, match="takes a NumPy array, got list"):
        predictor.get_input_handle("x").copy_from_cpu([1])
    with pytest.raises(InputError, match="run the predictor first"):
        predictor.get_output_handle("y").copy_to_cpu()
    with pytest.raises(InputError, match="level of detail"):
        predictor.get_input_handle("x").set_lod([[0, 1]])
    predictor.get_input_handle("x").set_lod([])


def test_names_and_numbers_are_paddles() -> None:
    assert "opalite" in paddle_inference.get_version()
    assert paddle_inference.get_trt_compile_version() == (0, 0, 0)
    assert paddle_inference.get_num_bytes_of_data_type(DataType.INT64) == 8
    assert int(paddle_inference.PlaceType.GPU) == 1
    assert Config.Precision.Half is PrecisionType.Half


def test_bundles_of_a_program(tmp_path: Path) -> None:
    path = program().write(tmp_path, "pir")
    opalite.compile(str(path), str(tmp_path / "m.opal"), shapes={"x": (2, 3)})
    (y,) = opalite.InferenceSession(str(tmp_path / "m.opal")).run(None, {"x": X})
    np.testing.assert_allclose(y, X @ W)


def test_a_plan_is_stored_and_a_new_parameter_file_is_seen(tmp_path: Path) -> None:
    path = program().write(tmp_path, "pir")
    for shift in (0, 0, 1):
        (tmp_path / "inference.pdiparams").write_bytes(combined({"w": W + shift}))
        (y,) = opalite.InferenceSession(str(tmp_path)).run(None, {"x": X})
        np.testing.assert_allclose(y, X @ (W + shift))
    assert opalite.InferenceSession(path).get_modelmeta().producer_name == "paddle"


QUESTIONS = [
    ("switch_ir_optim", (False,), "ir_optim", False),
    ("disable_onednn", (), "mkldnn_enabled", False),
    ("enable_mkldnn", (), "onednn_enabled", True),
    ("switch_specify_input_names", (True,), "specify_input_name", True),
    ("enable_new_ir", (), "new_ir_enabled", True),
    ("collect_shape_range_info", ("sizes.txt",), "shape_range_info_path", "sizes.txt"),
    ("enable_use_gpu", (512,), "memory_pool_init_size_mb", 512),
    ("enable_memory_optim", (), "tensorrt_engine_enabled", False),
    ("enable_memory_optim", (), "tensorrt_optimization_level", 3),
]


@pytest.mark.parametrize("call, arguments, question, answer", QUESTIONS)
def test_questions_answer_what_was_set(call: str, arguments: tuple[object, ...], question: str, answer: object) -> None:
    config = Config()
    getattr(config, call)(*arguments)
    assert getattr(config, question)() == answer
    assert getattr(Config(config), question)() == answer  # a copy


def test_passes_may_be_edited() -> None:
    passes = Config().pass_builder()
    passes.delete_pass("conv_bn_fuse_pass")
    passes.set_passes(["a", "b"])
    passes.insert_pass(1, "between")
    passes.delete_pass(0)
    passes.append_pass("last")
    assert passes.all_passes() == passes.debug_string().split() == ["between", "b", "last"]


def test_parameters_that_are_missing_are_not_others(tmp_path: Path) -> None:
    """Also where the program's own lie beside it."""
    path = program().write(tmp_path, "pdmodel")
    with pytest.raises(ModelFileError, match=r"no file .*nowhere\.pdiparams"):
        create_predictor(Config(str(path), str(tmp_path / "nowhere.pdiparams")))


def test_the_sizes_of_a_copied_array_hold(tmp_path: Path) -> None:
    path = program().write(tmp_path, "pdmodel")
    handle = create_predictor(Config(str(path), str(tmp_path / "inference.pdiparams"))).get_input_handle("x")
    handle.reshape([3, 2])
    assert handle.shape() == [3, 2]
    handle.copy_from_cpu(X)
    assert handle.shape() == [2, 3]
    np.testing.assert_array_equal(handle.copy_to_cpu(), X)


def test_a_predictor_takes_a_config() -> None:
    with pytest.raises(TypeError, match="takes a Config, got str"):
        create_predictor("inference.pdmodel")  # type: ignore[arg-type]
