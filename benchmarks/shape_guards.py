"""Shows which sizes one plan serves, and which guards reject the others.


    python -m benchmarks.shape_guards                                     # the built-in models, opened
    python -m benchmarks.shape_guards ../shared/models/*.onnx decoder      # files: those with open dimensions
    python -m benchmarks.shape_guards yunet.onnx --shape input:1x3x640x640 --device mali_g76 --tier generic

Each model is planned for the sizes of its stored or given inputs, and for each other `--at`, a factor of them. `served`
is the share of random sizes that a plan serves, from a quarter to four times those; each open size is drawn
independently and keeps the powers of two up to 32 that divide it. `invalid`: sizes that the model's own operators
reject, or that give empty tensors. Below are the failing conditions, their counts and their origins. Needs no OpenCL
device.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import onnx
from opalite.errors import OpaliteError
from opalite.importer import ImportRun, ModelImporter, load_model
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.symbols import Guard, hint_of
from opalite.plan.planner import Knowledge, PlanOptions
from opalite.plan.planner import plan as make_plan
from opalite.plan.template.program_template import Template

from .models import build
from .models.feeds import random_feeds, stored_feeds
from .models.opened import opened
from .new_sizes import make_decoder

PICTURES = (
    *("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet18", "squeezenet1_1", "inception_v1"),
    *("densenet121", "shufflenet_v2", "efficientnet_b0", "yolov8n_320", "unet_256"),
)
TEXTS = ("minilm_l6", "lstm_tagger", "decoder")
RANGE = 4.0  # range of factors of a size
GRAIN = 32  # powers of two up to this one are kept as divisors of a size


def load(name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[bytes, dict[str, Any]]:
    """A model's bytes, and inputs of the sizes to trace it with."""
    if name == "decoder":
        with tempfile.TemporaryDirectory() as folder:
            make_decoder(Path(folder) / "decoder.onnx")
            proto = onnx.load(Path(folder) / "decoder.onnx")
        given = {i.name: (1, 4, 64, 64) for i in proto.graph.input if i.name != "x"}
        return proto.SerializeToString(), random_feeds(proto, {**given, **shapes})
    if name in PICTURES:
        proto = build(name, "N")
        first = proto.graph.input[0]
        size = tuple(d.dim_value for d in first.type.tensor_type.shape.dim)
        given = {first.name: (4, *size[1:])}
        return opened(proto).SerializeToString(), random_feeds(proto, {**given, **shapes})
    if name in TEXTS:
        proto = build(name, "N")
        given = {i.name: tuple(d.dim_value or 4 for d in i.type.tensor_type.shape.dim) for i in proto.graph.input}
        for info in proto.graph.input:
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if axis < 2:
                    dim.dim_param = f"d{axis}"
        return opened(proto, ()).SerializeToString(), random_feeds(proto, {**given, **shapes})
    proto = onnx.load(name)
    feeds = stored_feeds(Path(name)) or random_feeds(proto, shapes)
    rng = np.random.default_rng(0)
    for key, shape in shapes.items():
        feeds[key] = rng.standard_normal(shape).astype(feeds[key].dtype)
    return proto.SerializeToString(), feeds


class Model:
    """A model whose open sizes are numbered.

    sizes: those of its inputs as given, by dimension name. Of a model of several segments, the first one.
    """

    def __init__(self, contents: bytes, feeds: Mapping[str, Any]) -> None:
        self._contents, self._feeds = contents, feeds
        self._dims: dict[str, list[str | None]] = {}
        proto = onnx.load_from_string(contents)
        self.sizes: dict[str, int] = {}
        for info in proto.graph.input:
            if info.name not in feeds:
                continue
            dims = info.type.tensor_type.shape.dim
            found: list[str | None] = []
            for axis, (dim, size) in enumerate(zip(dims, feeds[info.name].shape, strict=False)):
                name = None if dim.dim_value else dim.dim_param or f"{info.name}.{axis}"
                found.append(name)
                if name is not None and size > 1:
                    self.sizes[name] = size
            self._dims[info.name] = found

    def feeds(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Inputs whose open sizes are `sizes`."""
        made = {}
        for name, array in self._feeds.items():
            dims = self._dims.get(name) or [None] * array.ndim
            shape = tuple(sizes.get(d, s) if d else s for d, s in zip(dims, array.shape, strict=True))
            made[name] = array if shape == array.shape else np.resize(array, shape)
        return made

    def segment(self, sizes: Mapping[str, int], importer: ModelImporter | None = None) -> tuple[Any, tuple[int, ...]]:
        """The first segment, and the values of its symbols."""

        def no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
            raise OpaliteError("the body of a loop runs before anything else")

        run = ImportRun(importer or load_model(self._contents).importer, self.feeds(sizes), no_bodies)
        return run.segment, run.sizes


def other_sizes(base: Mapping[str, int], count: int, seed: int = 0) -> Iterator[dict[str, int]]:
    """The smallest and the largest sizes, then random ones."""
    rng = random.Random(seed)

    def scaled(size: int, factor: float) -> int:
        grain = min(GRAIN, size & -size)
        while grain > 1 and size < grain * RANGE:
            grain //= 2
        return max(2, grain, round(size * factor / grain) * grain)

    for n in range(count):
        factors = {d: (1 / RANGE, RANGE)[n] if n < 2 else RANGE ** rng.uniform(-1, 1) for d in base}
        yield {d: scaled(size, factors[d]) for d, size in base.items()}


def judge(template: Template, names: Sequence[str], model: Model, tried: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """The number of `tried` sizes that a template serves, and the failing guards."""
    served = invalid = 0
    failing: Counter[Guard] = Counter()
    for sizes in tried:
        try:
            segment, values = model.segment(sizes)
        except OpaliteError:
            invalid += 1
            continue
        if segment is not None and not all(hint_of(v.type.count) for v in segment.graph.values()):
            invalid += 1
        elif segment is None or len(values) != len(names) or segment.graph.trace is None:
            failing[Guard("another import", f"at {dict(sizes)}")] += 1
        elif template.holds(values):
            served += 1
        else:
            failing.update(template.failing(values))
    return {"tried": len(tried) - invalid, "served": served, "invalid": invalid, "failing": failing}


def by_place(failing: Mapping[Guard, int]) -> dict[str, dict[Guard, int]]:
    """Guards with their failure counts, by origin."""
    found: dict[str, dict[Guard, int]] = {}
    for guard, times in failing.items():
        found.setdefault(f"{guard.where} {guard.node}".strip(), {})[guard] = times
    return found


def show(name: str, options: argparse.Namespace) -> bool:
    """Judges one model; returns whether its plans serve all sizes."""
    contents, feeds = load(name, options.shape)
    model = Model(contents, feeds)
    label = Path(name).stem
    if not model.sizes:
        print(f"{label}: no open dimension is above 1")
        return True
    device = read_description(options.device)
    tried = list(other_sizes(model.sizes, options.count))
    all_served = True
    for factor in options.at:
        traced = {d: max(2, round(size * factor)) for d, size in model.sizes.items()}
        traced = {
            d: size if factor == 1 else max(2, size // 8 * 8 if size > 32 else size) for d, size in traced.items()
        }
        try:
            segment, _ = model.segment(traced)
        except OpaliteError as e:
            print(f"{label} at {traced}: {e}")
            continue
        if segment is None or segment.graph.trace is None:
            print(f"{label} at {traced}: its first part has no symbols")
            continue
        try:
            planned = make_plan(segment.graph.copy(), PlanOptions(tier=options.tier), Knowledge(device))
        except OpaliteError as e:
            print(f"{label} at {traced}: {e}")
            continue
        assert planned.template is not None
        found = judge(planned.template, planned.template.names, model, tried)
        steps = len(planned.program.steps)
        print(
            f"{label} at {traced}: serves {found['served']} of {found['tried']} ({found['invalid']} invalid), ", end=""
        )
        print(f"{steps} steps, {len(planned.template.guards)} conditions")
        for where, guards in by_place(found["failing"]).items():
            times = sum(guards.values())
            told = min((g.text for g in guards), key=len)
            print(f"    {len(guards)} conditions failed {times} times, {where}, such as {told[:150]}")
        all_served = all_served and found["served"] == found["tried"]
    return all_served


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """'x:1x3x64x64'."""
    name, _, dims = text.rpartition(":")
    return name, tuple(int(n) for n in dims.split("x"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*PICTURES, *TEXTS], help="names, or files")
    parser.add_argument("--shape", type=parse_shape, action="append", default=[], help="of an input, as x:1x3x64x64")
    parser.add_argument("--count", type=int, default=24, help="choices of sizes")
    parser.add_argument("--at", type=lambda t: [float(n) for n in t.split(",")], default=[1.0, 0.25, 4.0])
    parser.add_argument("--device", default="pocl_avx512", help="the name of a description")
    parser.add_argument("--tier", choices=["optimized", "generic"], default="optimized")
    options = parser.parse_args()
    options.shape = dict(options.shape)
    served = [show(name, options) for name in options.models]
    raise SystemExit(0 if all(served) else 1)


if __name__ == "__main__":
    main()
