"""Bundles: compiled ahead of time, run without onnx, and refused with a sentence where they do not fit.

Longer than 400 lines: cases that do not know each other.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import opalite
from onnx import TensorProto, helper, numpy_helper
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.runtime import Runtime
from opalite.errors import BundleError, InputError, ModelFormatError, NoDeviceError, PlacementError
from opalite.ir.constants.lazy_array import content_key
from opalite.ir.device.device_family import (
    BYTE_FOURS,
    BYTE_PAIRS,
    HALF_TYPES,
    HALF_VECTORS,
    PTX_DOT,
    PTX_MMA,
    PTX_WGMMA,
    SLOW_SUB_BUFFERS,
)
from opalite.ir.device.device_info import DeviceInfo
from opalite.plan.bundle.bundle import VERSION, Bundle, Variant, misfit
from opalite.plan.bundle.dispatch_key import DispatchKey
from opalite.plan.bundle.json_codec import Encoder
from opalite.plan.bundle.read_bundle import load_bundle
from opalite.plan.bundle.write_bundle import save_bundle
from opalite.plan.program import Program

from ....helpers.counters import spent
from ....helpers.small_models import adder, classifier, determinant, inverter, make_model, noise, port, save

SHAPE = (1, 3, 8, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def bundle(rt: Runtime, folder: Path) -> Path:
    """The classifier for batches of 1 and 2."""
    path = folder / "classifier.opal"
    shapes = [{"x": SHAPE}, {"x": (2, *SHAPE[1:])}]
    opalite.compile(classifier().SerializeToString(), path, shapes=shapes, device=rt.info.id, precision="fp32")
    return path


def test_compiling_again_gives_the_same_bytes(rt: Runtime, folder: Path, bundle: Path) -> None:
    """Also in another process, while the cache has the driver's binaries: PoCL writes random names into new ones."""
    again = folder / "again.opal"
    shapes = [{"x": SHAPE}, {"x": (2, *SHAPE[1:])}]
    model = classifier().SerializeToString()
    opalite.compile(model, again, shapes=shapes, device=rt.info.id, precision="fp32")
    assert again.read_bytes() == bundle.read_bytes()
    options = f"shapes={shapes}, device=sys.argv[2], precision='fp32'"
    code = f"import sys, opalite; opalite.compile({model!r}, sys.argv[1], {options})"
    subprocess.run([sys.executable, "-c", code, str(again), rt.info.id], check=True)
    assert again.read_bytes() == bundle.read_bytes()


def test_memory_that_comes_and_goes_is_not_in_the_file(rt: Runtime, folder: Path, bundle: Path) -> None:
    """Virtual machines are given more memory while they run: PoCL, asked in two processes, says two things."""
    loaded = load_bundle(bundle)
    before = folder / "before.opal"
    save_bundle(before, loaded)
    for v in loaded.variants:
        more = {"global_mem": v.device.global_mem + (1 << 30), "max_alloc": v.device.max_alloc * 2}
        v.device = dataclasses.replace(v.device, **more)
    save_bundle(folder / "after.opal", loaded)
    assert (before.read_bytes() == (folder / "after.opal").read_bytes()) == rt.info.on_host


def compiled(rt: Runtime, folder: Path, model: Any, **options: Any) -> opalite.InferenceSession:
    path = folder / "one.opal"
    opalite.compile(model.SerializeToString(), path, device=rt.info.id, precision="fp32", **options)
    return opalite.InferenceSession(path, device=rt.info.id)


# Results


def test_a_bundle_gives_what_the_model_gives(rt: Runtime, bundle: Path) -> None:
    model = opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32")
    session = opalite.InferenceSession(bundle, device=rt.info.id)
    for batch in (1, 2, 1):
        x = noise(batch, *SHAPE[1:])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], model.run(None, {"x": x})[0])
    assert session.get_inputs() == model.get_inputs()
    assert session.get_outputs() == model.get_outputs()
    assert session.get_modelmeta() == model.get_modelmeta()
    assert [n.kernel for n in session.explain().nodes] == [n.kernel for n in model.explain({"x": noise(*SHAPE)}).nodes]


def test_a_second_run_of_a_bundle_prepares_nothing(rt: Runtime, bundle: Path) -> None:
    session = opalite.InferenceSession(bundle, device=rt.info.id)
    session.run(None, {"x": noise(*SHAPE)})
    done = spent(rt, lambda: session.run(None, {"x": noise(*SHAPE)}))
    assert (done.programs_built, done.kernels_made, done.memory_objects, done.args_set) == (0, 0, 0, 0)


def test_a_bundle_runs_without_onnx(rt: Runtime, bundle: Path, folder: Path) -> None:
    """In a process where onnx cannot be imported, as where it is not installed."""
    np.save(folder / "x.npy", noise(*SHAPE))
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import numpy as np, opalite\n"
        f"session = opalite.InferenceSession({str(bundle)!r}, device={rt.info.id!r})\n"
        f"np.save({str(folder / 'y.npy')!r}, session.run(None, {{'x': np.load({str(folder / 'x.npy')!r})}})[0])\n"
        "parts = ('passes', 'kernels', 'ops', 'importer', 'tune.database')\n"
        "print(*(p for p in parts if f'opalite.{p}' in sys.modules))\n"
        "session.explain(), session.close()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
    here = opalite.InferenceSession(bundle, device=rt.info.id).run(None, {"x": noise(*SHAPE)})[0]
    np.testing.assert_array_equal(np.load(folder / "y.npy"), here)


def environment() -> dict[str, str]:
    """This process's, with the package under test importable."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_host_operators_need_onnx_and_say_so(rt: Runtime, folder: Path) -> None:
    path = folder / "host.opal"
    opalite.compile(determinant().SerializeToString(), path, shapes={"x": (2, 2)}, device=rt.info.id)
    assert opalite.InferenceSession(path, device=rt.info.id).run(None, {"x": [[1, 0], [0, 2]]})[0] == 2
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import opalite\n"
        f"opalite.InferenceSession({str(path)!r}, device={rt.info.id!r}).run(None, {{'x': [[1, 0], [0, 1]]}})\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert "Det node 'det' runs on the host, for which the onnx package must be installed" in result.stderr


def test_outputs_that_are_inputs_or_constants(rt: Runtime, folder: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["a"])
    ports = [port("x", [3]), port("unread", [2])]
    model = make_model([node], ports, [port("k", [2]), port("x", [3]), port("a", [3])], {"k": [5.0, 6.0]})
    session = compiled(rt, folder, model)
    feeds = {"x": noise(3), "unread": noise(2)}
    x = feeds["x"].copy()
    for _ in range(2):
        k, same, a = session.run(None, feeds)
        np.testing.assert_array_equal(k, [5, 6])
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(a, np.maximum(x, 0))
        for array in (k, same, a):
            array.fill(99)


def test_outputs_that_sizes_decide(rt: Runtime, folder: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "second"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["positions"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    numbers = {name: np.int64(v) for name, v in {"zero": 0, "one": 1, "second": 1}.items()}
    outputs = [port("positions", ["n"], TensorProto.INT64), port("y", ["b", "n"])]
    model = make_model(nodes, [port("x", ["b", "n"])], outputs, numbers)
    path = folder / "sizes.opal"
    opalite.compile(model.SerializeToString(), path, shapes={"x": (2, 3)}, device=rt.info.id)
    feeds = {"x": noise(2, 3)}
    session = opalite.InferenceSession(path, device=rt.info.id)
    for _ in range(2):
        positions, y = session.run(None, feeds)
        np.testing.assert_array_equal(positions, [0, 1, 2])
        np.testing.assert_array_equal(y, np.maximum(feeds["x"], 0))
    with pytest.raises(BundleError, match="compiled for shapes x:2x3; got x:2x4"):
        session.run(None, {"x": noise(2, 4)})


@pytest.mark.parametrize("kind", ["bool", "int64", "float16", "uint8", "bfloat16"])
def test_element_types(rt: Runtime, folder: Path, kind: str) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind.upper()))
    node = helper.make_node("Concat", ["x", "k"], ["y"], axis=0)
    code = getattr(TensorProto, kind.upper())
    model = make_model([node], [port("x", [3], code)], [port("y", [5], code)], {"k": np.array([1, 0], dtype)})
    got = compiled(rt, folder, model).run(None, {"x": np.array([0, 1, 1], dtype)})[0]
    assert got.dtype == dtype
    assert got.astype(int).tolist() == [0, 1, 1, 1, 0]


def test_closing_and_pickling(rt: Runtime, bundle: Path) -> None:
    x = noise(*SHAPE)
    with opalite.InferenceSession(bundle, device=rt.info.id) as session:
        want = session.run(None, {"x": x})[0]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(session)).run(None, {"x": x})[0], want)


def test_closing_does_not_need_the_file(rt: Runtime, bundle: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.opal"
    moved.write_bytes(bundle.read_bytes())
    session = opalite.InferenceSession(moved, device=rt.info.id)
    session.run(None, {"x": noise(*SHAPE)})
    moved.unlink()
    session.close()
    with pytest.raises(BundleError, match=r"moved.opal' does not exist; `opalite compile`"):
        session.run(None, {"x": noise(*SHAPE)})


def test_explaining_tries_a_compiled_shape(rt: Runtime, bundle: Path) -> None:
    session = opalite.InferenceSession(bundle, device=rt.info.id)
    assert session.example_shapes() == {"x": SHAPE}
    assert session.explain().node("conv1").kernel


# Feeds


@pytest.mark.parametrize(
    ("feeds", "error", "said"),
    [
        ({"x": noise(1, 4, 8, 8)}, InputError, r"'x' has size 3 along axis 1 \(float32\[N, 3, H, W\]\), got shape"),
        ({"x": noise(3, 8, 8)}, InputError, r"'x' has rank 4 \(float32\[N, 3, H, W\]\), got shape \(3, 8, 8\)"),
        ({"x": np.zeros(SHAPE)}, InputError, r"'x' is float32, got float64: pass x.astype\(np.float32\)"),
        ({"x": "abc"}, InputError, r"'x' cannot be made an array of float32\[N, 3, H, W\]"),
        ({"x": None}, InputError, r"'x' is None; a tensor float32\[N, 3, H, W\] is expected"),
        ({"z": noise(*SHAPE)}, InputError, r"'.*\.opal' has no input 'z'; its inputs are 'x'"),
        ({}, InputError, r"'.*\.opal' needs 'x', which the feeds lack; given: none"),
        (None, InputError, r"inputs are a dict \{'x': array\}, got NoneType"),
    ],
    ids=["channels", "rank", "dtype", "text", "no value", "name", "missing", "none"],
)
def test_feeds_that_do_not_fit(rt: Runtime, bundle: Path, feeds: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        opalite.InferenceSession(bundle, device=rt.info.id).run(None, feeds)


def test_shapes_that_a_bundle_lacks(rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_SYMBOLS", "0")
    path = tmp_path / "classifier.opal"
    shapes = [{"x": SHAPE}, {"x": (2, *SHAPE[1:])}]
    opalite.compile(classifier().SerializeToString(), path, shapes=shapes, device=rt.info.id, precision="fp32")
    said = r"compiled for shapes x:1x3x8x8; x:2x3x8x8; got x:3x3x8x8; .*--shape"
    with pytest.raises(BundleError, match=said):
        opalite.InferenceSession(path, device=rt.info.id).run(None, {"x": noise(3, 3, 8, 8)})


def test_lists_serve_as_feeds(rt: Runtime, bundle: Path) -> None:
    session = opalite.InferenceSession(bundle, device=rt.info.id)
    x = noise(*SHAPE)
    want = session.run(None, {"x": x})[0]
    for same in (x.tolist(), x.astype(">f4"), np.asfortranarray(x)):
        np.testing.assert_array_equal(session.run(None, {"x": same})[0], want)


def test_one_element_serves_for_a_scalar(rt: Runtime, folder: Path) -> None:
    model = make_model([helper.make_node("Neg", ["x"], ["y"])], [port("x", [])], [port("y", [])])
    session = compiled(rt, folder, model)
    for one in (np.float32(3), np.full(1, 3, np.float32), 3):
        got = session.run(None, {"x": one})[0]
        assert got.shape == ()
        assert got == -3


# Damaged and foreign files


def test_every_cut_of_a_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    raw, cut = bundle.read_bytes(), tmp_path / "cut.opal"
    for length in (0, 1, 7, 8, 9, 100, len(raw) // 2, len(raw) - 100, len(raw) - 1):
        cut.write_bytes(raw[:length])
        with pytest.raises(BundleError, match=r"cut.opal' is not a complete .opal bundle .*; compile the model again"):
            opalite.InferenceSession(cut)


def content_info(bundle: Bundle) -> list[Any]:
    """Everything of a bundle that gets to a driver."""
    found: list[Any] = [bundle.meta]
    for v in bundle.variants:
        encoder = Encoder()
        found += [v.device, v.fingerprint, v.needs, *v.program.placement]
        found += [encoder.encode(dataclasses.replace(v.program, placement=()))]
        found += [(a.dtype, a.shape, a.tobytes()) for a in encoder.arrays]
        found += [(i, read()) for i, read in v.binaries.items()]
    return found


def test_damage_anywhere_is_noticed_or_harmless(bundle: Path, tmp_path: Path) -> None:
    """A changed size, kernel or weight could crash a driver or give wrong answers, so none may get there."""
    raw, damaged = bundle.read_bytes(), tmp_path / "damaged.opal"
    whole = content_info(load_bundle(bundle))
    header = 8 + int.from_bytes(raw[:8], "little")
    rng = random.Random(5)
    noticed = 0
    for i in range(160):
        flipped = bytearray(raw)
        at = rng.randrange(header) if i % 2 else rng.randrange(header, len(raw))
        flipped[at] ^= 1 << rng.randrange(8)
        damaged.write_bytes(flipped)
        try:
            found = content_info(load_bundle(damaged))
        except BundleError as e:
            noticed += bool(re.search("compile (the model|it) again", str(e)))
        else:
            assert found == whole  # padding, or names that nothing reads
    assert noticed > 80


def test_a_damaged_weight_stops_a_session(rt: Runtime, bundle: Path, tmp_path: Path) -> None:
    weight = next(iter(load_bundle(bundle).find(rt.info).program.weights.values()))
    raw = bytearray(bundle.read_bytes())
    at = raw.index(weight.tobytes())
    raw[at] ^= 1
    (tmp_path / "damaged.opal").write_bytes(raw)
    session = opalite.InferenceSession(tmp_path / "damaged.opal", device=rt.info.id)
    with pytest.raises(BundleError, match=r"damaged.opal' is damaged; compile the model again"):
        session.run(None, {"x": noise(*SHAPE)})


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (lambda: save(adder(), "m.onnx"), "is not a complete .opal bundle"),
        (lambda: save_file({"a": noise(2)}, "m.opal"), "is a safetensors file, but not an Opalite bundle"),
        (lambda: os.mkdir("m.opal"), "is a folder; `opalite compile` makes one of a model"),
        (lambda: None, "does not exist; `opalite compile` makes one of a model"),
    ],
    ids=["onnx", "safetensors", "folder", "nothing"],
)
def test_what_is_no_bundle(contents: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    contents()
    if Path("m.onnx").exists():
        Path("m.onnx").rename("m.opal")
    with pytest.raises(BundleError, match=rf"'m.opal' {said}"):
        opalite.InferenceSession("m.opal")


def test_another_version_is_named(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opalite.plan.bundle.read_bundle.VERSION", 99)
    with pytest.raises(BundleError, match=rf"has bundle version {VERSION}, this opalite reads 99; compile it again"):
        load_bundle(bundle)


def test_another_device_is_named(bundle: Path, tmp_path: Path, rt: Runtime) -> None:
    loaded = load_bundle(bundle)
    for variant in loaded.variants:
        variant.device = dataclasses.replace(variant.device, name="Other GPU", kind="gpu", fp16=not rt.info.fp16)
    save_bundle(tmp_path / "other.opal", loaded)
    session = opalite.InferenceSession(tmp_path / "other.opal", device=rt.info.id)
    words = r"other devices \(Other GPU: kind 'gpu' was planned for, 'cpu' is here\); compile it again with --device"
    with pytest.raises(BundleError, match=words):
        session.run(None, {"x": noise(*SHAPE)})


def test_kernels_are_not_taken_where_their_instructions_are_missing() -> None:
    """All of one family: they differ in what the driver builds."""
    plain = dataclasses.replace(DeviceInfo(), family="nvidia", fp16=True)
    others = [{"quirks": (q,)} for q in (PTX_MMA, PTX_WGMMA, PTX_DOT, HALF_VECTORS, HALF_TYPES)]
    others.append({"extensions": ("cl_khr_integer_dot_product",)})
    devices = [plain, *(dataclasses.replace(plain, **other) for other in others)]
    for planned in devices:
        variant = Variant(planned, Program("m"), needs=DispatchKey({}))
        assert [device for device in devices if not misfit(variant, device)] == [planned]
    faster = dataclasses.replace(plain, name="another", clock_mhz=2000, quirks=(SLOW_SUB_BUFFERS,))
    assert not misfit(Variant(plain, Program("m"), needs=DispatchKey({})), faster)


@pytest.mark.parametrize("name, more", [("local_mem", 1), ("max_work_group_size", 1), ("base_align", 64)])
def test_a_device_with_less_is_told_what_it_lacks(name: str, more: int) -> None:
    plain = DeviceInfo()
    planned = dataclasses.replace(plain, **{name: getattr(plain, name) + more})
    why = misfit(Variant(planned, Program("m"), needs=DispatchKey({}, [(9, 5)])), plain)
    assert name in why
    assert str(getattr(plain, name)) in why
    assert "9x5" in misfit(Variant(plain, Program("m"), needs=DispatchKey({}, [(9, 5)])), plain)


def test_sums_of_bytes_are_asked_for_by_the_programs_that_take_them(bundle: Path, tmp_path: Path) -> None:
    """Processors of one family differ in them: a bundle that takes none runs on those that lack them."""
    loaded = load_bundle(bundle)
    for variant in loaded.variants:
        variant.device = dataclasses.replace(variant.device, quirks=(*variant.device.quirks, BYTE_FOURS))
        variant.needs = DispatchKey.of(variant.program)
        assert not variant.needs.byte_dots
    planned = loaded.variants[0].device
    lacking = dataclasses.replace(planned, quirks=tuple(q for q in planned.quirks if q not in (BYTE_FOURS, BYTE_PAIRS)))
    assert loaded.find(lacking)
    for variant in loaded.variants:
        program = variant.program
        program.sources = [dataclasses.replace(s, options=f"{s.options} -DDOTS=2") for s in program.sources]
        variant.needs = DispatchKey.of(program)
    save_bundle(tmp_path / "bytes.opal", loaded)
    kept = load_bundle(tmp_path / "bytes.opal")
    assert kept.find(planned)
    with pytest.raises(BundleError, match="byte_dots"):
        kept.find(lacking)


def test_a_bundle_without_programs_or_ports(tmp_path: Path, bundle: Path) -> None:
    save_bundle(tmp_path / "empty.opal", Bundle([], {}))
    with pytest.raises(BundleError, match="holds no program"):
        opalite.InferenceSession(tmp_path / "empty.opal")
    loaded = load_bundle(bundle)
    save_bundle(tmp_path / "bare.opal", Bundle(loaded.variants, {}))
    with pytest.raises(BundleError, match="does not describe its inputs"):
        opalite.InferenceSession(tmp_path / "bare.opal")


def test_strict_looks_into_a_bundle(rt: Runtime, folder: Path) -> None:
    path = folder / "host2.opal"
    opalite.compile(determinant().SerializeToString(), path, shapes={"x": (2, 2)}, device=rt.info.id)
    with pytest.raises(PlacementError, match=r"(?s)strict mode.*Det node 'det'"):
        opalite.InferenceSession(path, device=rt.info.id, strict=True).run(None, {"x": np.zeros((2, 2), np.float32)})


# Compiling


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, InputError, r"'x' has open dimensions \[N, 3, H, W\]; give its shape, such as --shape x:1x3x1x1"),
        ({"shapes": {"x": (1, 3, 8)}}, InputError, r"\(1, 3, 8\) does not fit input 'x' of shape \['N', 3, 'H', 'W'\]"),
        ({"shapes": {"x": (1, 4, 8, 8)}}, InputError, r"does not fit input 'x'"),
        ({"shapes": {"x": (-1, 3, 8, 8)}}, InputError, r"shape \(-1, 3, 8, 8\) has a negative size"),
        ({"shapes": {"x": "1x3x8x8"}}, InputError, r"a shape is whole numbers .*, got '1x3x8x8'"),
        ({"shapes": [1, 3]}, InputError, r"shapes are a dict such as \{'x': .*got \[1, 3\]"),
        ({"shapes": {"q": (1,)}}, InputError, r"a shape is given for 'q', but the model's inputs are x"),
        ({"shapes": {"x": SHAPE}, "device": "nonsense"}, NoDeviceError, r"no OpenCL device matches 'nonsense'. Found"),
        ({"shapes": {"x": SHAPE}, "precision": "fp8"}, InputError, r"precision 'fp8' is not known; choose fp32, fp16"),
    ],
    ids=["open", "rank", "size", "negative", "text", "no names", "name", "device", "precision"],
)
def test_what_cannot_be_compiled(tmp_path: Path, options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        opalite.compile(classifier().SerializeToString(), tmp_path / "m.opal", **options)
    assert not list(tmp_path.iterdir())


def test_models_without_one_program_are_refused(tmp_path: Path) -> None:
    where = helper.make_node("NonZero", ["x"], ["i"], name="where")
    depends = make_model(
        [where, helper.make_node("Neg", ["i"], ["y"])], [port("x", [2])], [port("y", None, TensorProto.INT64)]
    )
    with pytest.raises(BundleError, match=r"shapes depend on data at NonZero node 'where'.*; run the .onnx file"):
        opalite.compile(depends.SerializeToString(), tmp_path / "m.opal")
    constant = make_model([helper.make_node("Neg", ["k"], ["y"])], [], [port("y", [1])], {"k": [1.0]})
    with pytest.raises(BundleError, match="computes nothing from its inputs"):
        opalite.compile(constant.SerializeToString(), tmp_path / "m.opal")
    with pytest.raises(ModelFormatError, match="bytes is not a complete ONNX model"):
        opalite.compile(b"abc", tmp_path / "m.opal")


@pytest.mark.parametrize(
    ("name", "said"),
    [("m.bin", r"must end in .opal, .* write .*m.bin.opal"), ("nope/m.opal", r"folder of bundle .* does not exist")],
)
def test_where_a_bundle_may_go(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        opalite.compile(inverter().SerializeToString(), tmp_path / name)


def test_a_bundle_may_be_read_by_others(bundle: Path) -> None:
    """It has the rights of any new file, not those of a temporary one."""
    fresh = bundle.with_name("fresh")
    fresh.touch()
    assert bundle.stat().st_mode == fresh.stat().st_mode
    assert sorted(p.suffix for p in bundle.parent.iterdir() if p.name.startswith(".")) == []


def test_the_topology_is_plain_json(bundle: Path) -> None:
    raw = bundle.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    topology = json.loads(header["__metadata__"]["opalite"])
    assert topology["version"] == VERSION
    assert len(topology["variants"]) == 2
    assert json.loads(header["__metadata__"]["program 1"])


# What lies in the file


def test_any_safetensors_reader_reads_it(bundle: Path) -> None:
    program = load_bundle(bundle).variants[0].program
    with safe_open(bundle, framework="numpy") as f:
        assert {"opalite", "digest", "program 0", "reports 0", "program 1"} <= f.metadata().keys()
        for slot, key in program.weight_keys.items():
            weight = program.weights[slot]
            np.testing.assert_array_equal(f.get_tensor(key).reshape(weight.shape), weight)


def test_variants_share_their_weights(bundle: Path) -> None:
    one, two = (v.program for v in load_bundle(bundle).variants)
    assert one.weight_keys
    assert set(one.weight_keys.values()) == set(two.weight_keys.values())


def test_weights_are_used_where_they_are_read(rt: Runtime, bundle: Path) -> None:
    """On a CPU buffers are the memory that the file was read into: no other copy is made."""
    if not rt.info.on_host:
        pytest.skip("device memory is not host memory")
    for weight in load_bundle(bundle).find(rt.info).program.weights.values():
        assert rt.allocator.wrapped(weight) is not None


# Files that change behind a session


def test_a_bundle_cut_or_changed_in_place_leaves_a_running_session_as_it_is(
    rt: Runtime, bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.opal"
    raw = bundle.read_bytes()
    path.write_bytes(raw)
    session = opalite.InferenceSession(path, device=rt.info.id)
    x = noise(*SHAPE)
    want = session.run(None, {"x": x})[0]
    for contents in (bytes(len(raw)), raw[:1000], b""):
        with path.open("r+b") as f:  # the same inode
            f.write(contents)
            f.truncate(len(contents))
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
        with pytest.raises(BundleError, match=r"mine.opal' is damaged; compile the model again"):
            session.run(None, {"x": noise(2, *SHAPE[1:])})  # the other program was not read yet
        with pytest.raises(BundleError, match=r"is not a complete \.opal bundle"):
            opalite.InferenceSession(path, device=rt.info.id)


def test_a_bundle_replaced_behind_a_session(rt: Runtime, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.opal"
    path.write_bytes(bundle.read_bytes())
    session = opalite.InferenceSession(path, device=rt.info.id)
    x = noise(*SHAPE)
    want = session.run(None, {"x": x})[0]
    other = classifier()
    for tensor in other.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(values + np.float32(0.5), tensor.name))
    shapes = [{"x": SHAPE}, {"x": (2, *SHAPE[1:])}]
    opalite.compile(other.SerializeToString(), path, shapes=shapes, device=rt.info.id, precision="fp32")
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
    # What was not read yet is read of the file that was opened.
    np.testing.assert_allclose(session.run(None, {"x": np.concatenate([x, x])})[0][:1], want, rtol=1e-5, atol=1e-6)
    fresh = opalite.InferenceSession(path, device=rt.info.id)
    assert not np.allclose(fresh.run(None, {"x": x})[0], want)
    session.close()
    with pytest.raises(BundleError, match=r"mine.opal has changed since the session was opened; open a new session"):
        session.run(None, {"x": x})


def test_weight_keys_are_those_of_the_contents(bundle: Path) -> None:
    """So that sessions of the model and of its bundle share device memory."""
    program = load_bundle(bundle).variants[0].program
    assert program.weight_keys == {slot: content_key(a) for slot, a in program.weights.items()}


def test_binaries_spare_the_compiler(rt: Runtime, bundle: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """A device and driver that the bundle was made on start with an empty cache and compile nothing, if trusted."""
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "empty"))
    fresh = Runtime(find_device(rt.info.id))
    loaded = load_bundle(bundle)
    variant = loaded.find(rt.info)
    assert len(variant.binaries) == len(variant.program.sources)
    monkeypatch.setattr("opalite.run.api.session.session_core.find_runtime", lambda *_: fresh)
    want = opalite.InferenceSession(bundle, trust=True).run(None, {"x": noise(*SHAPE)})[0]
    assert fresh.counters.programs_built == 0
    assert fresh.counters.programs_from_bundle == len({(s.text, s.options) for s in variant.program.sources})

    for v in loaded.variants:
        v.fingerprint = "another driver"
    save_bundle(tmp_path / "other.opal", loaded)
    other = Runtime(find_device(rt.info.id))
    monkeypatch.setattr("opalite.run.api.session.session_core.find_runtime", lambda *_: other)
    got = opalite.InferenceSession(tmp_path / "other.opal", trust=True).run(None, {"x": noise(*SHAPE)})[0]
    assert other.counters.programs_from_bundle == 0
    assert other.counters.programs_built > 0
    np.testing.assert_array_equal(got, want)


def test_machine_code_of_a_bundle_is_taken_from_those_who_are_trusted(
    rt: Runtime, bundle: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Else what this machine's cache made is taken, and what it has not made is compiled."""
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "empty"))
    feeds = {"x": noise(*SHAPE)}
    answers = []
    for trust, setting, offers, builds in (
        (None, "", False, True),
        (False, "1", False, False),
        (None, "1", True, False),
        (True, "0", True, False),
        (None, "0", False, False),
    ):
        monkeypatch.setenv("OPALITE_TRUST_BUNDLES", setting)
        fresh = Runtime(find_device(rt.info.id))
        monkeypatch.setattr("opalite.run.api.session.session_core.find_runtime", lambda *_, fresh=fresh: fresh)
        session = opalite.InferenceSession(bundle, trust=trust)
        answers.append(session.run(None, feeds)[0])
        assert (fresh.counters.programs_from_bundle > 0) is offers
        assert (fresh.counters.programs_built > 0) is builds
        assert pickle.loads(pickle.dumps(session))._compiler.options.trust is offers
    for other in answers[1:]:
        np.testing.assert_array_equal(other, answers[0])


def test_a_binary_that_the_driver_refuses_is_built_again(
    rt: Runtime, bundle: Path, tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "empty"))
    loaded = load_bundle(bundle)
    variant = loaded.find(rt.info)
    variant.binaries = {i: lambda: b"not what this driver writes" for i in variant.binaries}
    save_bundle(tmp_path / "foreign.opal", loaded)
    fresh = Runtime(find_device(rt.info.id))
    monkeypatch.setattr("opalite.run.api.session.session_core.find_runtime", lambda *_: fresh)
    got = opalite.InferenceSession(tmp_path / "foreign.opal", trust=True).run(None, {"x": noise(*SHAPE)})[0]
    assert fresh.counters.programs_built > 0
    assert "refuses a binary" in caplog.text
    here = opalite.InferenceSession(bundle).run(None, {"x": noise(*SHAPE)})[0]
    np.testing.assert_array_equal(got, here)
