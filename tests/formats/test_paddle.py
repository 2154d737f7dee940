"""Paddle's programs beside paddlepaddle: one operator each, in both formats, and rapidocr-paddle by its import line.

`make test-formats` installs both in an environment of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import opalite
from tests.helpers.numpy_session import NumpySession

PROGRAMS = Path(__file__).parent / "paddle" / "save_programs.py"
SCRIPT = Path(__file__).parent / "scripts" / "ocr.py"
FEWEST = {"pir": 327, "legacy": 247}
"""Programs that paddlepaddle 3.3 writes and runs; the others are refused by paddle itself."""
TOLERANCE = 1e-4

pytestmark = pytest.mark.skipif(
    find_spec("paddle") is None, reason="paddlepaddle is not installed: `make test-formats` installs it"
)


@pytest.fixture(scope="module", params=sorted(FEWEST))
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Path]]:
    """All programs of a format, saved once."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, str(PROGRAMS), str(folder), request.param]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return request.param, sorted(folder.glob("*.npz"))


def difference(found: np.ndarray, wanted: np.ndarray) -> str:
    """How an output differs, in words; '' if it does not."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(found, wanted) else f"{found.ravel()[:4]} for {wanted.ravel()[:4]}"
    largest = np.abs(np.where(np.isfinite(wanted), wanted, 0)).max(initial=0) or 1.0
    close = np.isclose(found, wanted, rtol=0, atol=TOLERANCE * largest, equal_nan=True)
    return "" if close.all() else f"{found[~close][:4]} for {wanted[~close][:4]}"


def run_all(paths: list[Path], on_device: bool) -> list[str]:
    """Run programs on their inputs; what is wrong, a line each."""
    wrong = []
    for path in paths:
        program = next(p for e in (".json", ".pdmodel") if (p := path.with_suffix(e)).exists())
        with np.load(path) as held:
            arrays = dict(held)
        try:
            if on_device:
                session = opalite.InferenceSession(program)
                names = [v.name for v in session.get_inputs()]
                outs = session.run(None, {n: arrays[n] for n in names})
            else:
                plain = NumpySession(program)
                outs = plain.run({v.name: arrays[v.name] for v in plain.model.inputs})
        except Exception as e:  # all programs are tried
            wrong.append(f"{path.stem}: {type(e).__name__}: {e}")
            continue
        found = [difference(np.asarray(a), arrays[f"y{i}"]) for i, a in enumerate(outs)]
        wrong += [f"{path.stem}, output {i}: {text}" for i, text in enumerate(found) if text]
    return wrong


def test_every_operator_gives_what_paddle_gives(programs: tuple[str, list[Path]]) -> None:
    kind, paths = programs
    assert len(paths) >= FEWEST[kind]
    wrong = run_all(paths, on_device=False)
    assert not wrong, "\n".join(wrong)


def test_on_the_device(programs: tuple[str, list[Path]]) -> None:
    _, paths = programs
    wrong = run_all(paths[::4], on_device=True)
    assert not wrong, "\n".join(wrong)


def read_page(folder: Path, packages: Path | None) -> dict[str, np.ndarray]:
    """Run the script that reads a page; packages: a folder with another rapidocr_paddle."""
    folder.mkdir(exist_ok=True)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(packages or ""), *sys.path])))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "page.npz")],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(folder / "page.npz") as found:
        return dict(found)


@pytest.mark.skipif(find_spec("rapidocr_paddle") is None, reason="rapidocr-paddle is not installed")
def test_rapidocr_is_ported_by_its_import_line(tmp_path: Path) -> None:
    spec = find_spec("rapidocr_paddle")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, tmp_path / "ours" / "rapidocr_paddle")
    engine = tmp_path / "ours" / "rapidocr_paddle" / "utils" / "infer_engine.py"
    text = engine.read_text()
    line = "from opalite import paddle_inference as inference\n"
    ported = text.replace("import paddle\nfrom paddle import inference\n", line)
    assert ported != text
    engine.write_text(ported)
    theirs = read_page(tmp_path / "theirs", None)
    ours = read_page(tmp_path / "ours", tmp_path / "ours")
    assert len(theirs["texts"]) >= 5
    assert list(ours["texts"]) == list(theirs["texts"])
    np.testing.assert_array_equal(ours["boxes"], theirs["boxes"])
    np.testing.assert_allclose(ours["scores"], theirs["scores"], atol=1e-4)
