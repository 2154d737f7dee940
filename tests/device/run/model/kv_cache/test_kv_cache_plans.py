"""Plans of runs on caches, kept between processes: a prompt's and those of the tokens after it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from opalite.cache.cache_folder import cache_entries
from opalite.cl.runtime import Runtime
from opalite.run.model.onnx_model import OnnxModel

from .....helpers.decoders import KINDS, feeds_of

TOKENS = [5, 3, 8, 60, 2, 9, 44]


def open_session(model: Any, rt: Runtime, precision: str = "fp32") -> opalite.InferenceSession:
    return opalite.InferenceSession(model, device=rt.info.id, precision=precision)


def told(session: opalite.InferenceSession, kind: str, tokens: list[int] = TOKENS) -> list[Any]:
    """Logits of a prompt of three tokens, then of the others one by one."""
    state = session.state(reserve=32)
    found, held = [], 0
    for ids in (tokens[:3], *([t] for t in tokens[3:])):
        found.append(state.run(feeds_of(kind, np.array([ids]), held))[0])
        held += len(ids)
        assert len(state) in (0, held) or kind == "scattered"
    assert state.copies == ""
    return found


def imports(session: opalite.InferenceSession) -> bool:
    """Whether the session parsed its file."""
    model = session._model
    assert isinstance(model, OnnxModel)
    return model.is_imported


def plans(folder: Path) -> list[Path]:
    return sorted(u.path for u in cache_entries(folder) if u.kind == "plan")


@pytest.mark.parametrize("kind", ["llama", "grouped", "merged"])
def test_the_second_process_plans_nothing(folder: Path, rt: Runtime, kind: str) -> None:
    model = KINDS[kind]()
    first = open_session(model, rt)
    wanted = told(first, kind)
    first.close()
    assert imports(first)
    assert 2 <= len(plans(folder)) <= 4
    second = open_session(model, rt)
    found = told(second, kind)
    assert not imports(second)
    stats = second.stats()
    assert (stats.plans_made, stats.programs_built) == (0, 0)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    longer = [*TOKENS, *range(10, 50)]  # beyond what was reserved
    plain = open_session(model, rt)
    plain._model.imported()  # type: ignore[attr-defined]
    for a, b in zip(told(second, kind, longer), told(plain, kind, longer), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())
    assert not imports(second)
    assert second.stats().plans_made == 0
    second.close()  # and once more from the cache
    for a, b in zip(told(second, kind), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_process_with_plans_does_without_onnx(folder: Path, rt: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(KINDS["llama"]())
    wanted = told(open_session(path, rt), "llama")
    feeds = {f"{i}.{n}": v for i, f in enumerate(_feeds()) for n, v in f.items()}
    np.savez(tmp_path / "feeds.npz", **feeds)
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import numpy as np, opalite\n"
        f"feeds = dict(np.load({str(tmp_path / 'feeds.npz')!r}))\n"
        f"state = opalite.InferenceSession({str(path)!r}, device={rt.info.id!r}, precision='fp32').state(reserve=32)\n"
        f"for i in range({len(wanted)}):\n"
        "    own = {n.split('.')[1]: v for n, v in feeds.items() if n.split('.')[0] == str(i)}\n"
        "    logits = state.run(own)[0]\n"
        f"np.save({str(tmp_path / 'logits.npy')!r}, logits)\n"
        "print(*(p for p in ('passes', 'kernels', 'importer') if f'opalite.{p}' in sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), wanted[-1])


def _feeds() -> list[dict[str, Any]]:
    steps = [TOKENS[:3], *([t] for t in TOKENS[3:])]
    return [feeds_of("llama", np.array([ids]), sum(map(len, steps[:i]))) for i, ids in enumerate(steps)]


def test_plans_are_for_the_same_model_and_options(folder: Path, rt: Runtime, tmp_path: Path) -> None:
    """Data files included, of which one with other contents has the same size and time."""
    path, data = tmp_path / "model.onnx", tmp_path / "data.bin"
    model = onnx.load_from_string(KINDS["llama"]())
    onnx.save(model, path, save_as_external_data=True, location=data.name, size_threshold=1024)
    wanted = told(open_session(path, rt), "llama")
    again = open_session(path, rt)
    np.testing.assert_array_equal(told(again, "llama")[-1], wanted[-1])
    assert not imports(again)
    halves = open_session(path, rt, "fp16")
    told(halves, "llama")
    assert imports(halves)
    before = data.stat()
    data.write_bytes(np.frombuffer(data.read_bytes(), np.float32)[::-1].tobytes())
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    other = open_session(path, rt)
    assert imports(other)
    assert np.abs(told(other, "llama")[-1] - wanted[-1]).max() > 1e-3


@pytest.mark.parametrize("what", ["plan", "weight"])
def test_damage_heals(folder: Path, rt: Runtime, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opalite.plan.bundle.write_bundle.APART", 4096)
    model = KINDS["llama"]()
    first = open_session(model, rt)
    wanted = told(first, "llama")
    del first
    gc.collect()  # what the device holds is not read again
    for unit in cache_entries(folder):
        if unit.kind == what:
            raw = bytearray(unit.path.read_bytes())
            raw[len(raw) // 2] ^= 255
            unit.path.write_bytes(raw)
    second = open_session(model, rt)
    for a, b in zip(told(second, "llama"), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    second.close()
    third = open_session(model, rt)
    np.testing.assert_array_equal(told(third, "llama")[-1], wanted[-1])
    assert not imports(third)


def test_halves_that_do_not_hold_the_values_are_not_kept(folder: Path, rt: Runtime) -> None:
    model = onnx.load_from_string(KINDS["llama"]())
    for w in model.graph.initializer:
        if w.name == "embedding" or "embed" in w.name:
            array = onnx.numpy_helper.to_array(w)
            w.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(1e4), w.name))
    data = model.SerializeToString()
    wanted = told(open_session(data, rt), "llama")
    for _ in range(2):
        session = open_session(data, rt, "fp16")
        for a, b in zip(told(session, "llama"), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=0.03 * np.abs(b).max())
        session.close()
