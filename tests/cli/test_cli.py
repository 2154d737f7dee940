"""Every command with every kind of input: exit codes, files, and never a traceback unless asked for.

Longer than 400 lines: cases that do not know each other, a few for each command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import opalite as package
from onnx import helper, numpy_helper
from opalite.cli import main
from opalite.ops.softmax import Softmax
from opalite.tune.database_files import database_path
from opalite.tune.tuning_database import Entry, TuningDatabase
from opalite.tune.tuning_levels import Level

from ..helpers.small_models import adder, classifier, determinant, inverter, make_model, noise, port, save

COMMANDS = (
    "bench",
    "cache",
    "compile",
    "devices",
    "doctor",
    "generate",
    "inspect",
    "knobs",
    "profile",
    "run",
    "tune",
    "verify",
)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, where the models and inputs of a test are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    save(classifier(), "net.onnx")
    save(inverter(), "invert.onnx")
    save(adder(), "add.onnx")


def opalite(*args: str, code: int = 0, stdin: bytes | None = None) -> str:
    """The output of a command with exit status `code`. stdin: what it can read from standard input."""
    result: Result = CliRunner().invoke(main, list(args), input=stdin)
    assert result.exit_code == code, result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    assert "internal error" not in result.output
    return result.output


def real(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with these variables in its environment."""
    env = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), *filter(None, sys.path)))}
    return subprocess.run(
        [sys.executable, "-m", "opalite", *args], capture_output=True, text=True, env=env, timeout=120
    )


# The command line itself


def test_help_lists_every_command() -> None:
    text = opalite("--help")
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", text, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    assert opalite(name, "--help").startswith(f"Usage: main {name}")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("run",), "Missing argument 'MODEL'"),
        (("run", "add.onnx", "--bogus"), "No such option '--bogus'"),
        (("run", "add.onnx", "--iterations", "x"), "'x' is not a valid integer"),
        (("run", "add.onnx", "--iterations", "-1"), "-1 is not in the range x>=0"),
        (("run", "add.onnx", "--warmup", "-1"), "-1 is not in the range"),
        (("run", "add.onnx", "--top-k", "-1"), "-1 is not in the range"),
        (("run", "add.onnx", "--seed", "-1"), "-1 is not in the range"),
        (("profile", "add.onnx", "--iterations", "0"), "0 is not in the range x>=1"),
        (("bench", "add.onnx", "--percentile", "101"), "101.0 is not in the range 0<=x<=100"),
        (("bench", "add.onnx", "--threads", "0"), "0 is not in the range"),
        (("bench", "add.onnx", "--threads", "100000"), "100000 is not in the range 1<=x<=1024"),
        (("bench", "add.onnx", "--duration", "nan"), "nan is not a finite number"),
        (("verify", "add.onnx", "--rtol", "-1"), "-1.0 is not in the range"),
        (("verify", "add.onnx", "--rtol", "nan"), "nan is not a finite number"),
        (("run", "add.onnx", "--scale", "inf"), "inf is not a finite number"),
        (("tune", "add.onnx", "--level", "hard"), "'hard' is not one of"),
        (("cache", "nonsense"), "No such command 'nonsense'"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)
def test_wrong_options_exit_with_2(args: tuple[str, ...], said: str) -> None:
    assert said in opalite(*args, code=2)


@pytest.mark.parametrize("name", ["bench", "compile", "inspect", "profile", "run", "tune", "verify"])
def test_every_command_says_what_is_wrong_with_a_model(name: str) -> None:
    assert opalite(name, "none.onnx", code=1) == "opalite: there is no file 'none.onnx'\n"
    Path("text.onnx").write_text("not a model")
    assert "'text.onnx' is not a complete ONNX model (11 bytes)" in opalite(name, "text.onnx", code=1)
    assert "is a folder: give the model file in it" in opalite(name, ".", code=1)


def test_an_unexpected_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a mishap")

    monkeypatch.setattr("opalite.run.api.session.inference_session.InferenceSession.run", fail)
    result = CliRunner().invoke(main, ["run", "add.onnx"])
    assert result.exit_code == 1
    assert "internal error: RuntimeError: a mishap" in result.output
    assert "--debug" in result.output
    assert "Traceback" not in result.output
    debugged = CliRunner().invoke(main, ["--debug", "run", "add.onnx"])
    assert isinstance(debugged.exception, RuntimeError)


def test_real_processes() -> None:
    assert real("--version").stdout.startswith("opalite ")
    assert real("run", "-h").stdout.startswith("Usage: opalite run")
    bad = real("run", "none.onnx")
    assert (bad.returncode, bad.stdout, bad.stderr) == (1, "", "opalite: there is no file 'none.onnx'\n")
    assert "Traceback" in real("--debug", "run", "none.onnx").stderr
    good = real("run", "add.onnx", "--iterations", "1")
    assert good.returncode == 0, good.stderr
    assert "output   y: float32[2, 3]" in good.stdout
    wide = real("inspect", "net.onnx", "--shape", "x:1x3x16x16")
    assert max(map(len, wide.stdout.splitlines())) > 100  # a pipe gets whole tables


def test_names_that_the_output_cannot_show_are_escaped(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["größe"], ["y"], "крик")]
    path = save(make_model(nodes, [port("größe", [2])], [port("y", [2])]), tmp_path / "names.onnx")
    result = real("inspect", path, PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert r"gr\xf6\xdfe" in result.stdout
    assert real("doctor", PYTHONIOENCODING="cp1252").stdout.startswith(r"\u2713")


def test_a_process_without_drivers() -> None:
    env = {**os.environ, "OCL_ICD_VENDORS": "/nonexistent", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "opalite", "run", "add.onnx"]
    result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    if result.returncode == 0:
        pytest.skip("this loader does not read OCL_ICD_VENDORS")
    assert result.returncode == 1
    assert result.stderr.startswith("opalite: no OpenCL device was found")
    assert "opalite doctor" in result.stderr
    assert "Traceback" not in result.stderr


# knobs


def test_knobs_lists_settings_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PRECISION", "fp16")
    monkeypatch.setenv("OPALITE_FLUSH", "often")
    text = opalite("knobs")
    assert re.search(r"OPALITE_PRECISION +fp16 +fp32 +Default precision", text)
    assert re.search(r"OPALITE_FLUSH +often \(not valid\)", text)
    assert "None" not in text


# run


def test_inputs_from_files() -> None:
    x, z = noise(2, 3), noise(2, 3, seed=1)
    np.save("x.npy", x)
    np.savez("both.npz", x=x, z=z)
    Path("z.pb").write_bytes(numpy_helper.from_array(z, "z").SerializeToString())
    for given in (("both.npz",), ("x.npy", "z.pb"), ("z=z.pb", "x=x.npy")):
        files = [a for f in given for a in ("-i", f)]
        opalite("run", "add.onnx", *files, "-o", "y.npz", "--iterations", "0")
        np.testing.assert_allclose(np.load("y.npz")["y"], x + z, rtol=1e-6)


def test_random_inputs_are_seeded() -> None:
    for seed, name in (("1", "a.npy"), ("1", "b.npy"), ("2", "c.npy")):
        opalite("run", "add.onnx", "--seed", seed, "--shape", "z:2x3", "-o", name, "--iterations", "0")
    np.testing.assert_array_equal(np.load("a.npy"), np.load("b.npy"))
    assert np.any(np.load("a.npy") != np.load("c.npy"))


def test_pictures_with_mean_std_layout_and_order() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("p.png")
    scaled = pixels / np.float32(255)

    def result(*options: str) -> Any:
        opalite("run", "invert.onnx", "-i", "p.png", "-o", "y.npy", "--iterations", "0", *options)
        return np.load("y.npy")[0]

    np.testing.assert_allclose(result(), 1 - scaled.transpose(2, 0, 1), atol=1e-6)
    np.testing.assert_allclose(result("--order", "BGR"), 1 - scaled[..., ::-1].transpose(2, 0, 1), atol=1e-6)
    np.testing.assert_allclose(result("--scale", "1"), 1.0 - pixels.transpose(2, 0, 1), atol=1e-4)
    means, stds = np.float32([0.1, 0.2, 0.3]), np.float32([0.5, 0.25, 2])
    want = 1 - ((scaled - means) / stds).transpose(2, 0, 1)
    np.testing.assert_allclose(result("--mean", "0.1,0.2,0.3", "--std", "0.5,0.25,2"), want, atol=1e-5)
    save(inverter((1, 8, 8, 3)), "invert.onnx")
    np.testing.assert_allclose(result("--layout", "NHWC"), 1 - scaled, atol=1e-6)


def test_a_picture_is_written_back() -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("p.png")
    opalite("run", "invert.onnx", "-i", "p.png", "-o", "out.png", "--iterations", "0")
    assert np.abs(np.asarray(Image.open("out.png"), np.int32) - (255 - pixels)).max() <= 1


def test_top_classes_with_labels() -> None:
    Path("labels.txt").write_text("\n".join(["n01440764 tench, Tinca", *(f"class{i}" for i in range(1, 10))]))
    text = opalite("run", "net.onnx", "--shape", "x:1x3x8x8", "--top-k", "10", "--labels", "labels.txt", "-o", "y.npy")
    listed = re.findall(r"^ +([\d.]+) +(\d+)  (\S+)", text, re.MULTILINE)
    scores = np.load("y.npy")[0]
    assert [int(i) for _, i, _ in listed] == np.argsort(-scores, kind="stable").tolist()
    assert {int(i): word for _, i, word in listed}[0] == "tench,"


def test_values_inside_the_model_by_name() -> None:
    text = opalite(
        "run", "net.onnx", "--shape", "x:1x3x8x8", "--output", "a", "--output", "y", "--iterations", "0", "-o", "v.npz"
    )
    assert "a: float32[1, 8, 8, 8]" in text
    assert set(np.load("v.npz")) == {"a", "y"}
    assert "-o v.npz writes outputs to a file" in opalite("run", "net.onnx", "--output", "v.npz", code=1)


def test_an_output_called_file_is_saved() -> None:
    """np.savez cannot write it."""
    node = helper.make_node("Neg", ["x"], ["file"])
    save(make_model([node], [port("x", [2])], [port("file", [2])]), "m.onnx")
    opalite("run", "m.onnx", "-o", "y.npz", "--iterations", "0")
    assert np.load("y.npz")["file"].shape == (2,)


def test_names_that_look_like_markup_are_printed_as_they_are() -> None:
    node = helper.make_node("Neg", ["[red]x[/y]"], ["[bold]y[/]"], name="[/]n")
    save(make_model([node], [port("[red]x[/y]", [2])], [port("[bold]y[/]", [2])]), "m.onnx")
    assert "[bold]y[/]: float32[2]" in opalite("run", "m.onnx", "--iterations", "0")
    assert "[/]n" in opalite("inspect", "m.onnx")


def test_times_are_shown_apart() -> None:
    text = opalite("run", "add.onnx", "--iterations", "3")
    for word in ("import", "build", "upload", "compute", "download", "first inference", "median of 3 runs"):
        assert word in text
    assert re.search(r"speed +[\d.e-]+ ms an inference, [\d.,]+ inferences/s", text)
    assert "median" not in opalite("run", "add.onnx", "--iterations", "0")


def test_runs_are_repeated_until_they_are_steady() -> None:
    found = json.loads(opalite("run", "invert.onnx", "--json"))
    assert found["is_steady"] or len(found["runs"]) > 1
    assert found["median_ms"] == pytest.approx(1e3 * float(np.median([r["total_s"] for r in found["runs"]])))
    assert "frames/s" in opalite("run", "invert.onnx", "--iterations", "1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_with_the_files_name() -> None:
    said = opalite("bench", "add.onnx", "--iterations", "1", "-o", "/dev/full", code=1)
    assert "/dev/full cannot be written: No space left on device" in said


def bad_inputs() -> dict[str, tuple[list[str], str]]:
    return {
        "no file": (["-i", "none.npy"], "input file none.npy does not exist"),
        "folder": (["-i", "."], "input file . is a folder"),
        "kind": (["-i", "x.txt"], "unknown kind of input; expected .npy, .npz, .pb, .wav or a picture"),
        "damaged npy": (["-i", "bad.npy"], "bad.npy could not be read as input 'x'"),
        "empty npy": (["-i", "empty.npy"], "empty.npy could not be read"),
        "damaged npz": (["-i", "bad.npz"], "bad.npz could not be read"),
        "cut npz": (["-i", "cut.npz"], "cut.npz could not be read"),
        "damaged pb": (["-i", "bad.pb"], "bad.pb' is not a complete TensorProto"),
        "other names": (["-i", "other.npz"], "other.npz holds q, r, but the model's inputs are x, z"),
        "too many": (["-i", "x.npy"] * 3, "the model's 2 inputs all have a file already"),
        "type": (["-i", "text.npy"], "input 'x' is f32, the file holds <U1"),
        "rank": (["-i", "flat.npy"], "'x' has rank 2"),
        "shape text": (["--shape", "x"], "'x' is not NAME:DIMS; write for example --shape input:1x3x224x224"),
        "shape name": (["--shape", "q:1"], "--shape names 'q', but the model's inputs are x, z"),
        "shape size": (["--shape", "x:2x4"], "--shape x:2x4 does not fit input 'x', which is 2x3"),
        "shape of a file": (
            ["-i", "x=wide.npy", "--shape", "x:2x3"],
            "--shape x:2x3 does not fit the file of input 'x', which holds 2x4",
        ),
        "out kind": (["-o", "y.xyz"], "unknown kind of output; write .npz, .npy, .wav or a picture"),
        "out folder": (["-o", "none/y.npy"], "none/y.npy cannot be written: its folder does not exist"),
        "labels": (["--labels", "none.txt"], "labels none.txt could not be read"),
        "picture rank": (["-i", "p.png"], "a picture needs an input of rank 3 or 4; 'x' is 2x3"),
    }


@pytest.mark.parametrize("what", bad_inputs())
def test_bad_inputs_are_told(what: str) -> None:
    for name, text in (("x.txt", "1 2"), ("bad.npy", "abc"), ("bad.npz", "abc"), ("bad.pb", "abc"), ("bad.png", "abc")):
        Path(name).write_text(text)
    Path("empty.npy").touch()
    np.savez("other.npz", q=noise(2), r=noise(2))
    Path("cut.npz").write_bytes(Path("other.npz").read_bytes()[:150])
    np.save("x.npy", noise(2, 3))
    np.save("flat.npy", noise(3))
    np.save("wide.npy", noise(2, 4))
    np.save("text.npy", np.array(["a"]))
    Image.new("RGB", (8, 8)).save("p.png")
    args, said = bad_inputs()[what]
    assert said in opalite("run", "add.onnx", "--iterations", "0", *args, code=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--std", "0"], "--std must not be 0"),
        (["--mean", "1,2"], "--mean has 2 numbers; input 'x' has 3 channels"),
        (["--layout", "NHWC"], "has 8 channels in NHWC; try another --layout"),
        (["--preprocess", "zero"], "--preprocess zero: expected 0..1, -1..1, imagenet, raw, caffe, or a .json file"),
    ],
)
def test_bad_picture_options_are_told(options: list[str], said: str) -> None:
    Image.new("RGB", (8, 8)).save("p.png")
    assert said in opalite("run", "invert.onnx", "-i", "p.png", *options, code=1)


def test_a_damaged_picture_is_told() -> None:
    Image.fromarray(np.random.default_rng(5).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save("p.png")
    whole = Path("p.png").read_bytes()
    for raw in (b"", b"abc", whole[:20], whole[: len(whole) // 2]):
        Path("bad.png").write_bytes(raw)
        assert "bad.png could not be read as a picture" in opalite("run", "invert.onnx", "-i", "bad.png", code=1)


def test_strict_refuses_the_host() -> None:
    save(determinant(), "det.onnx")
    assert "Det node 'det'" in opalite("run", "det.onnx", "--strict", code=1)


# inspect


def test_inspect_shows_placement_and_one_node() -> None:
    text = opalite("inspect", "net.onnx", "--shape", "x:1x3x16x16", "--all")
    for word in (
        "producer tests",
        "opset 18",
        "conv1",
        "Conv+Relu",
        "opencl",
        "launches",
        "memory: arena",
        "0 on the host",
        "lower bound",
    ):
        assert word in text
    assert "assumed" not in text
    assert "[1, 3, 224, 224] assumed; give --shape" in opalite("inspect", "net.onnx")
    assert "conv2" not in opalite("inspect", "net.onnx", "--limit", "2")
    text = opalite("inspect", "net.onnx", "--node", "conv1")
    for word in ("runs:", "candidate", "refused by", "epilogue: max($0"):
        assert word in text
    said = opalite("inspect", "net.onnx", "--node", "nope", code=1)
    assert re.search(r"no node is named 'nope' after fusion; there are: x, .*conv1", said)


# compile


def test_compile_then_use_the_bundle_without_shapes() -> None:
    assert "x: [1, 3, 224, 224] assumed; give --shape" in opalite("compile", "net.onnx")
    assert "x:2x3x8x8" in opalite("compile", "net.onnx", "--shape", "x:2x3x8x8")
    assert "float32[2, 10]" in opalite("run", "net.opal", "--iterations", "0")
    assert "conv1" in opalite("inspect", "net.opal")
    opalite("profile", "net.opal", "--iterations", "1")
    assert "float32[3, 10]" in opalite("run", "net.opal", "--shape", "x:3x3x9x7", "--iterations", "0")
    assert (
        "compiled for shapes x:s0x3xs1xs2; got x:1x3x8x8, for which s0 >= 2 does not hold; compile it with --shape"
        in opalite("run", "net.opal", "--shape", "x:1x3x8x8", code=1)
    )
    assert "verify the .onnx file" in opalite("verify", "net.opal", code=1)
    assert "must end in .opal" in opalite("compile", "invert.onnx", "m.bin", code=1)


def test_compile_does_not_write_over_the_model() -> None:
    raw = Path("add.onnx").read_bytes()
    Path("named.opal").write_bytes(raw)  # a model that is called like a bundle
    for args in (("named.opal",), ("named.opal", "./named.opal")):
        assert "the model's own file, which would be lost" in opalite("compile", *args, code=1)
    assert Path("named.opal").read_bytes() == raw


def test_compile_says_what_is_wrong_with_paths_without_names() -> None:
    assert "is a folder: give the model file in it" in opalite("compile", "/", code=1)
    Path("circle").symlink_to("circle")
    assert "symbolic links" in opalite("compile", "circle/add.onnx", code=1)


# profile


def test_profile_writes_a_trace() -> None:
    text = opalite("profile", "net.onnx", "--iterations", "2", "--trace", "t.json", "--limit", "1")
    for word in (
        "GFLOP/s",
        "of peak",
        "measured peaks",
        "launches",
        "wrote t.json",
        "hits/misses: programs",
    ):
        assert word in text
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert {e["name"] for e in events} >= {"process_name", "Softmax node 'prob'"}
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
    assert "folder does not exist" in opalite("profile", "net.onnx", "--trace", "none/t.json", code=1)


def test_profile_of_a_model_without_launches() -> None:
    save(make_model([helper.make_node("Identity", ["x"], ["y"])], [port("x", [2])], [port("y", [2])]), "id.onnx")
    text = opalite("profile", "id.onnx", "--trace", "t.json")
    assert "device 0.000 ms" in text
    assert not [e for e in json.loads(Path("t.json").read_text())["traceEvents"] if e["ph"] == "X"]


# devices


def test_devices_says_what_a_node_of_ray_announces() -> None:
    found = json.loads(opalite("devices", "--resources"))
    every = package.devices()
    others = [d for d in every if d.kind != "cpu"]
    assert found == {"opencl": len(others or every)}


# bench


def test_bench_measures_opalite_alone() -> None:
    text = opalite("bench", "add.onnx", "--iterations", "4", "--warmup", "0", "--percentile", "75", "-o", "b.json")
    for word in ("first", "median", "p75", "memory", "MiB", "2 threads", "wrote b.json"):
        assert word in text
    record = json.loads(Path("b.json").read_text())
    (engine,) = record["engines"]
    assert engine["engine"] == "opalite"
    assert engine["run_s"]["median"] > 0
    assert engine["memory"] > 1 << 20
    assert sum(s["runs"] for s in engine["slices"]) >= 4


def test_bench_against_another_engine() -> None:
    text = opalite("bench", "net.onnx", "--shape", "x:1x3x8x8", "--against", "onnxruntime", "--iterations", "3")
    assert re.search(r"^onnxruntime +[\d.]+ +[\d.]+", text, re.MULTILINE)


def test_bench_tells_of_engines_that_cannot() -> None:
    text = opalite("bench", "add.onnx", "--against", "nonsense", "--iterations", "1", "--warmup", "0", code=1)
    assert "nonsense is missing" in text
    assert re.search(r"^opalite +[\d.]+", text, re.MULTILINE)
    assert "name each engine once" in opalite("bench", "add.onnx", "--against", "opalite", code=1)


def test_bench_finds_the_mode_of_most_inferences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")  # its programs take seconds
    options = ("--throughput", "--threads", "2", "--duration", "0.2", "-o", "t.json")
    text = opalite("bench", "add.onnx", *options)
    for mode in ("opalite latency", "opalite threads 2", "opalite processes 2"):
        assert re.search(rf"^{mode} +[\d.]+ +[\d.]+", text, re.MULTILINE)
    (code,) = re.findall(r"^best .*: (opalite\..*)$", text, re.MULTILINE)
    record = json.loads(Path("t.json").read_text())
    rates = {(m["engine"], m["kind"]): m["rate"]["median"] for m in record["modes"]}
    assert record["best"]["kind"] == max((r, k) for (e, k), r in rates.items() if e == "opalite")[1]
    with eval(code, {"opalite": package}) as made:  # what it says can be written
        assert type(made).__name__ == code.partition("(")[0].removeprefix("opalite.")
    assert "give --duration" in opalite("bench", "add.onnx", "--throughput", "--iterations", "3", code=1)


# verify


def test_verify_agrees_node_by_node() -> None:
    text = opalite("verify", "net.onnx", "--shape", "x:1x3x9x7", "--all")
    for word in ("conv1", "Softmax node 'prob'", "rewriting, seen at 'y'", "output 'y'", "agree on"):
        assert word in text
    assert "agree on" in opalite("verify", "net.onnx", "--shape", "x:1x3x9x7", "--precision", "fp16")


def test_verify_names_the_first_bad_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that is wrong stands for a kernel that is."""
    right = Softmax.reference
    monkeypatch.setattr(Softmax, "reference", lambda self, x: [right(self, x)[0] + np.float32(0.5)])
    text = opalite("verify", "net.onnx", "--shape", "x:1x3x8x8", code=1)
    assert "first bad: Softmax node 'prob' by Softmax" in text
    assert "Conv+Relu" not in text
    assert "agree on" in opalite("verify", "net.onnx", "--shape", "x:1x3x8x8", "--atol", "1")


def test_verify_is_as_strict_as_asked() -> None:
    text = opalite("verify", "net.onnx", "--shape", "x:1x3x19x23", "--rtol", "1e-13", code=1)
    assert re.search(r"first bad: \w+.* node 'conv1'", text)
    assert "comparisons on" in text


def test_verify_follows_errors_along_the_graph() -> None:
    options = ("--shape", "x:1x3x9x7", "--cumulative", "--precision", "fp16")
    text = opalite("verify", "net.onnx", *options, "--against", "fp32", "--dump", "values")
    for word in ("SNR dB", "fp32 dB", "conv1", "output 'y'", "within", "wrote"):
        assert word in text
    files = json.loads(Path("values/index.json").read_text())
    kept = np.load(Path("values") / files["y"])
    np.testing.assert_allclose(kept["device"], kept["float64"], atol=1e-2)
    found = json.loads(opalite("verify", "net.onnx", *options, "--json", "--policies"))["drift"]
    assert found["points"][0]["nodes"] == ["conv1", "relu1"]
    assert found["policies"][-1]["precision"] == "fp32"
    text = opalite("verify", "net.onnx", *options, "--tolerance", "1e-7", code=1)
    assert "drift passes 1e-07 first at" in text
    assert "beyond 1e-07" in text


def test_options_of_the_cumulative_comparison() -> None:
    assert "--dump belongs to --cumulative" in opalite("verify", "net.onnx", "--dump", "d", code=1)
    assert "--output chooses values for --dump" in opalite("verify", "net.onnx", "--output", "y", code=1)
    told = opalite("verify", "add.onnx", "--cumulative", "--dump", "d", "--output", "q", code=1)
    assert "no kernel stores the value 'q'" in told
    assert "memory 'paper' is not known" in opalite(
        "verify", "add.onnx", "--cumulative", "--against", "fp32:paper", code=1
    )


# cache


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningDatabase:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OPALITE_CACHE", raising=False)
    return TuningDatabase(database_path())


def entry(seconds: float) -> Entry:
    return Entry("a device", "digest", "NCHW->NCHW", "Conv 1 2 3", {"TW": 4}, (8, 1), seconds, 2e-3, Level.FAST)


def test_tuning_is_exported_and_imported(empty_cache: TuningDatabase) -> None:
    assert re.search(r"program binaries +0", opalite("cache", "ls"))
    empty_cache.put(entry(1e-3))
    assert re.search(r"tuning of a device +1", opalite("cache", "ls"))
    assert "wrote 1 tuning results to t.json" in opalite("cache", "export", "t.json")
    assert "no tuning results of device 'b' are kept; there are: a device" in opalite(
        "cache", "export", "t.json", "--device", "b", code=1
    )
    assert "forgot 1 tuning results" in opalite("cache", "clear", "--tuning")
    assert "took 1 tuning results from t.json" in opalite("cache", "import", "t.json")
    assert "took 0 tuning results" in opalite("cache", "import", "t.json")  # none is faster than itself
    assert next(empty_cache.entries()).seconds == 1e-3


def test_clearing_keeps_tuning(empty_cache: TuningDatabase, tmp_path: Path) -> None:
    empty_cache.put(entry(1e-3))
    binary = tmp_path / "cache" / "programs" / "ab" / "abc.bin"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(bytes(1 << 20))
    assert re.search(r"program binaries +1 +1.0", opalite("cache", "ls"))
    assert opalite("cache", "clear") == "freed 1.0 MiB of programs and plans\n"
    assert not binary.exists()
    assert next(empty_cache.entries()).device == "a device"


def test_hits_and_misses_of_processes_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    said = [real("run", "net.onnx", "--shape", "x:1x3x16x16", "--iterations", "1").stdout for _ in range(2)]
    first, second = (dict(re.findall(r"(\w+) (\d+/\d+)", s.partition("hits/misses:")[2])) for s in said)
    programs = int(first["programs"].split("/")[1])
    assert programs > 0, "what was not there is built, and counted so"
    assert (first["programs"], second["programs"]) == (f"0/{programs}", f"{programs}/0")
    assert second["plans"] == "1/0"
    listed = opalite("cache", "ls")
    assert re.search(rf"program binaries +{programs} +[\d.]+ +{programs} +{programs} *\n", listed)
    assert re.search(r"plans of models +1 +[\d.]+ +1 +[1-9]", listed)
    opalite("cache", "clear")
    assert re.search(r"program binaries +0 +0.0 +0 +0 *\n", opalite("cache", "ls"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("abc", "tuning entries are expected as JSON"),
        ("{}", "tuning entries of format"),
        (None, "could not be read: No such"),
    ],
)
def test_a_file_without_tuning(empty_cache: TuningDatabase, text: str | None, said: str) -> None:
    if text is not None:
        Path("t.json").write_text(text)
    told = opalite("cache", "import", "t.json", code=1)
    assert said in told
    assert "t.json" in told


def test_a_cache_that_is_off(monkeypatch: pytest.MonkeyPatch, empty_cache: TuningDatabase) -> None:
    monkeypatch.setenv("OPALITE_CACHE", "0")
    assert "OPALITE_CACHE=0" in opalite("cache", "ls")
    assert "tuning results are kept in memory only (OPALITE_CACHE=0" in opalite("cache", "export", "t.json", code=1)
