"""Documents of `opalite lens` in their documented form, without a device: for tests and benchmarks of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KERNELS = (
    "ConvPacked",
    "ConvWinograd",
    "DepthwisePacked",
    "MatmulTiled",
    "ElementwiseFlat",
    "SoftmaxRows",
    "PoolPacked",
)
OPERATORS = ("Conv", "Conv", "Conv", "MatMul", "Add", "Softmax", "MaxPool")
KERNEL = """// {0}: y = max(x, 0).
#ifndef VEC
#define VEC 4
#endif
kernel void {0}(global const float *x, global float *y) {{
    const int i = get_global_id(0);
    y[i] = x[i] < 0.0f ? 0.0f : x[i];
}}"""


def made_document(
    launches: int = 12, names: Sequence[str] = (), scale: float = 1.0, device: str = "Test GPU"
) -> dict[str, Any]:
    """A chain of launches with a skip every fifth; each computes its operator and a Relu. names: of the first nodes.

    `scale` multiplies every time; every seventh launch of a scaled document takes another kernel.
    """
    model: list[dict[str, Any]] = []
    edges: list[list[Any]] = []
    program: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = [_step("upload", 0, "x")]
    step_edges: list[list[int]] = []
    boxes: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [{"step": 0, "kind": "upload", "name": "x", "start_ms": 0.0, "ms": 0.05, "depth": 0}]
    now = 0.05
    for i in range(launches):
        kernel = KERNELS[(i + (scale != 1.0 and i % 7 == 0)) % len(KERNELS)]
        name = names[i] if i < len(names) else f"/block{i // 5}/{OPERATORS[i % 7].lower()}_{i}"
        ms = scale * (0.05 + 0.03 * (i % 4))
        step, relu = len(steps), len(model) + 1
        common = {"launches": [step], "nodes": [i], "rewrites": [i], "scope": "", "fate": "launch"}
        words = {"fate_words": f"becomes launch {i}", "ms": ms / 2}
        inputs = ["x" if not i else f"r{i - 1}", f"w{i}"]
        attributes = {"kernel_shape": "3, 3"} if OPERATORS[i % 7] == "Conv" else {}
        model.append(
            {
                "name": name,
                "op": OPERATORS[i % 7],
                "attributes": attributes,
                "inputs": inputs,
                "outputs": [f"c{i}"],
                **common,
                **words,
            }
        )
        model.append(
            {
                "name": f"{name}/relu",
                "op": "Relu",
                "attributes": {},
                "inputs": [f"c{i}"],
                "outputs": [f"r{i}"],
                **common,
                **words,
            }
        )
        edges.append([relu - 1, relu, f"c{i}"])
        step_edges.append([step - 1, step])
        if i:
            edges.append([relu - 2, relu - 1, f"r{i - 1}"])
        if i >= 5 and not i % 5:
            edges.append([relu - 1 - 8, relu - 1, f"r{i - 5}"])
            step_edges.append([step - 4, step])
        program.append(
            {
                "part": 0,
                "name": name,
                "operators": f"{OPERATORS[i % 7]}+Relu",
                "op": OPERATORS[i % 7],
                "target": "opencl",
                "kernel": kernel,
                "outputs": [f"r{i}: float32[1, 32, 28, 28]"],
                "places": ["opencl packed 8"],
                "parameters": {"VEC": 8, "ROWS": 4},
                "why": "the fastest of its candidates",
                "epilogue": "max(x, 0)",
                "group": [8, 4, 1],
                "steps": [step],
                "model_nodes": [relu - 1, relu],
                "rewrites": [i],
                "ms": ms,
                "estimated_ms": 1.2 * ms,
                "flops": 9.0e6 * (1 + i % 3),
                "bytes": 2.0e5,
                "candidates": [
                    {"kernel": kernel, "layout": "packed 8", "ms": ms, "is_measured": True},
                    {"kernel": "ConvGeneric", "layout": "flat", "ms": 4 * ms, "is_measured": False},
                ],
                "refusals": {"ConvImage": "the device has no images", "ConvDot": "operands are floats, not bytes"},
            }
        )
        steps.append(
            {
                **_step("launch", i, name),
                "kernel": kernel,
                "entry": kernel.lower(),
                "source": i % len(KERNELS),
                "defines": {"VEC": "8", "REAL": "float"},
                "options": "-cl-mad-enable",
                "grid": [28, 28, 4],
                "group": [8, 4, 1],
                "groups": 98,
                "flops": 9.0e6 * (1 + i % 3),
                "bytes": 2.0e5,
                "arguments": [
                    {"name": "y", "kind": "buffer", "box": i, "is_read": False},
                    {"name": "span", "kind": "number", "value": 28},
                ],
                "ms": ms,
                "arithmetic": "fp32",
                "roof": min(1.0, 0.05 / ms),
                "bound": "compute" if i % 3 else "memory",
            }
        )
        boxes.append(
            {
                "part": 0,
                "kind": "arena",
                "label": f"r{i}",
                "offset": 100352 * (i % 3),
                "bytes": 100352,
                "first": step,
                "last": min(step + 1, launches),
                "within": None,
            }
        )
        events.append({"step": step, "kind": "launch", "name": name, "start_ms": now, "ms": ms, "depth": 0})
        now += 1.03 * ms
    steps.append(_step("download", launches - 1, "y"))
    step_edges.append([len(steps) - 2, len(steps) - 1])
    events.append({"step": len(steps) - 1, "kind": "download", "name": "y", "start_ms": now, "ms": 0.04, "depth": 0})
    return {
        "header": {
            "model": "made.onnx",
            "producer": "tests",
            "opset": 17,
            "device": device,
            "driver": "1.0",
            "platform": "Test",
            "opencl": "3.0",
            "precision": "float32",
            "memory": "buffers",
            "version": "0.1.0",
            "command": "opalite lens made.onnx",
            "date": "2026-01-02T03:04:05",
            "is_measured": True,
            "runs": 10,
            "typical_runs": 5,
            "error": None,
            "device_ms": now,
            "run_ms": now + 0.04,
            "launches": launches,
            "host_steps": 0,
            "flops": 1.8e7 * launches,
            "bytes": 2.0e5 * launches,
            "inputs": [{"name": "x", "dtype": "float32", "shape": "1x3x224x224"}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": "1x1000"}],
            "notes": ["without profiling, launches form one megakernel"],
        },
        "peaks": {
            "bandwidth": {"rate": 4.0e10, "is_measured": True},
            "fp32": {"rate": 2.6e11, "is_measured": True},
            "fp16": {"rate": 5.2e11, "is_measured": False},
        },
        "graph": {
            "nodes": model,
            "edges": edges,
            "tensors": {f"r{i}": {"dtype": "float32", "shape": "1x32x28x28", "kind": "value"} for i in range(launches)},
        },
        "program": {
            "parts": [
                {
                    "name": "main",
                    "loop": "",
                    "steps": list(range(len(steps))),
                    "nodes": list(range(launches)),
                    "memory": {
                        "chosen": "greedy by size",
                        "arena": 301056,
                        "lower_bound": 200704,
                        "weights": 4.0e6,
                        "inputs_outputs": 6.0e5,
                        "images": 0,
                    },
                }
            ],
            "nodes": program,
            "steps": steps,
            "boxes": boxes,
            "edges": step_edges,
        },
        "rewrites": [
            {
                "pass": "fuse_epilogue",
                "part": 0,
                "removed": [f"Relu(c{i})"],
                "added": [f"Conv(..., epilogue=max(x, 0)) {i}"],
                "model_nodes": [2 * i, 2 * i + 1],
            }
            for i in range(launches)
        ],
        "passes": {"fuse_epilogue": "elementwise operators join the kernel that writes their input"},
        "sources": [{"name": f"{kernel}.cl", "pieces": [i]} for i, kernel in enumerate(KERNELS)],
        "pieces": [KERNEL.format(kernel) for kernel in KERNELS],
        "timeline": {"events": events, "ms": now + 0.04},
        "drift": None,
    }


def _step(kind: str, node: int, name: str) -> dict[str, Any]:
    return {
        "part": 0,
        "kind": kind,
        "node": node if kind == "launch" else None,
        "name": name,
        "bytes": 602112,
        "ms": 0.05,
        "times": 1,
    }


def made_drift(document: dict[str, Any]) -> dict[str, Any]:
    """Drift of each launch of a made document in half precision; errors grow along the chain."""
    step = 4e-4
    points = [
        {
            "index": i,
            "node": n["name"],
            "operators": n["operators"],
            "nodes": [n["name"], f"{n['name']}/relu"],
            "value": f"r{i}",
            "kernel": n["kernel"],
            "stored": "f16",
            "shape": [1, 32, 28, 28],
            "error": step * i,
            "relative": step * i,
            "own": step * (1 + i % 3),
            "inherited": step * max(i - 1, 0),
            "snr_db": 80.0 - i if i else None,
            "smallest": 0.0,
            "largest": 10.0 * (i + 1),
            "near_overflow": 0.0,
            "subnormal": 0.01 * i,
            "lost": 0.0,
        }
        for i, n in enumerate(document["program"]["nodes"])
    ]
    last = points[-1]["relative"]
    first = document["program"]["nodes"][0]["name"]
    return {
        "device": "Test GPU",
        "precision": "fp16",
        "memory": "auto",
        "allowed": 1e-3,
        "passed": last <= 1e-3,
        "start": next((p["index"] for p in points if p["relative"] > 1e-3), None),
        "sources": [2],
        "points": points,
        "outputs": [
            {"name": "y", "error": 1.0, "relative": last, "snr_db": 60.0, "allowed": 1e-3, "passed": last <= 1e-3}
        ],
        "policies": [
            {"precision": "fp16", "fp32": [], "error": 5e-4, "ms": 1.0, "bytes": 2e6},
            {"precision": "fp16", "fp32": [first, f"{first}/relu"], "error": 8e-6, "ms": 1.5, "bytes": 3e6},
            {"precision": "fp32", "fp32": [], "error": 0.0, "ms": 2.0, "bytes": 4e6},
        ],
    }
