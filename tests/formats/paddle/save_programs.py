"""Saves programs of one Paddle operator each, with inputs and paddle's outputs.

Run by the Python of an environment with paddlepaddle: `python save_programs.py FOLDER pir|legacy [NAME...]`. It does
not import Opalite. Each program gives FOLDER/NAME.json or .pdmodel, .pdiparams and FOLDER/NAME.npz with inputs (x0,
x1...) and outputs (y0, y1...), or NAME.refused where paddle does not write or run it in this format.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

if sys.argv[2] == "legacy":
    os.environ["FLAGS_enable_pir_api"] = "0"

import images
import layers
import numeric
import numpy as np
import paddle
import shapes
from case import CASES, Lazy
from paddle import nn

MODULES = (images, layers, numeric, shapes)  # they fill CASES

_LIMIT_S = 20  # without progress


class _Program(nn.Layer):
    """A function as a Layer; subclasses have as many inputs as it."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn


class _One(_Program):
    def forward(self, x0):
        return self.fn(x0)


class _Two(_Program):
    def forward(self, x0, x1):
        return self.fn(x0, x1)


class _Three(_Program):
    def forward(self, x0, x1, x2):
        return self.fn(x0, x1, x2)


_PROGRAMS = (_One, _Two, _Three)


def _vary(layer):
    """Change the parameters of a layer a little: they would be all zeros and ones in part."""
    for p in layer.parameters():
        change = 0.1 * np.random.default_rng(1).standard_normal(p.shape)
        p.set_value(p + paddle.to_tensor(change.astype(np.float32)))


def _save_pir(path: str, fn, specs) -> None:
    layer = fn() if isinstance(fn, Lazy) else _PROGRAMS[len(specs) - 1](fn)
    layer.eval()
    _vary(layer)
    paddle.jit.save(paddle.jit.to_static(layer, input_spec=specs, full_graph=True), path, input_spec=specs)


def _save_legacy(path: str, fn, specs) -> None:
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        inputs = [paddle.static.data(s.name, s.shape, s.dtype) for s in specs]
        layer = (fn.static or fn()) if isinstance(fn, Lazy) else fn
        if isinstance(layer, nn.Layer):
            layer.eval()
        found = layer(*inputs)
        outputs = [v for v in paddle.utils.flatten(found) if v is not None]
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(start)
        paddle.static.save_inference_model(path, inputs, outputs, executor, program=main)


def save(folder: Path, name: str) -> None:
    """Save one program with its inputs and outputs."""
    paddle.seed(3)
    fn, given = CASES[name]
    pairs = [v if isinstance(v, tuple) else (v, v.shape) for v in given]
    specs = [paddle.static.InputSpec(list(s), str(a.dtype), f"x{i}") for i, (a, s) in enumerate(pairs)]
    legacy = sys.argv[2] == "legacy"
    (_save_legacy if legacy else _save_pir)(str(folder / name), fn, specs)
    params = folder / f"{name}.pdiparams"
    config = paddle.inference.Config(
        str(folder / f"{name}.{'pdmodel' if legacy else 'json'}"), str(params) if params.exists() else ""
    )
    config.disable_gpu()
    config.disable_glog_info()
    config.disable_mkldnn()
    config.switch_ir_optim(False)
    predictor = paddle.inference.create_predictor(config)
    for n in predictor.get_input_names():
        predictor.get_input_handle(n).copy_from_cpu(pairs[int(n[1:])][0])
    predictor.run()
    outs = [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]
    arrays = {f"x{i}": a for i, (a, _) in enumerate(pairs)} | {f"y{i}": a for i, a in enumerate(outs)}
    np.savez(folder / f"{name}.npz", **arrays)


def save_all(folder: Path, names: list[str]) -> None:
    """Save the named programs; write what paddle refuses to FOLDER/NAME.refused."""
    guard = paddle.pir_utils.OldIrGuard if sys.argv[2] == "legacy" else contextlib.nullcontext
    for name in names:
        try:
            if sys.argv[2] == "legacy":
                paddle.enable_static()
            with guard():
                save(folder, name)
        except Exception as e:  # paddle refuses some programs in one of the formats
            lines = [n for n in str(e).splitlines() if n.strip()]
            (folder / f"{name}.refused").write_text(f"{type(e).__name__}: {lines[-1][:150] if lines else ''}")


def main() -> None:
    """Save the named programs, or all, in processes of their own: paddle crashes in some."""
    folder, names = Path(sys.argv[1]), sys.argv[3:]
    if names:
        save_all(folder, names)
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = list(CASES)
    while names:
        with subprocess.Popen([sys.executable, *sys.argv[:3], *names]) as child:
            while child.poll() is None:
                before = len(os.listdir(folder))
                try:
                    child.wait(_LIMIT_S)
                except subprocess.TimeoutExpired:
                    if len(os.listdir(folder)) == before:
                        child.kill()
        names = [n for n in names if not any((folder / f"{n}.{e}").exists() for e in ("npz", "refused"))]
        if names and child.returncode:
            (folder / f"{names.pop(0)}.refused").write_text("paddle crashed or hung")


if __name__ == "__main__":
    main()
