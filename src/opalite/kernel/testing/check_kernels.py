"""Checks of the kernels and operators of a module, on variations of its Cases, against the NumPy reference.

Each case is run as it is given, in prime sizes and in sizes of one; stored as float, half and double; in every binding
of layouts; at every legal point of the kernel's space; and in work-groups that divide no axis of the grid, and in large
ones. Outputs and scratch memory are NaN before, and all buffers have walls (walled_run.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from ...cl.runtime import Runtime
from ...errors import BuildError, DeviceError, OpaliteError, PluginError, ShapeError
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.load_plugins import describe_fault
from ...ir.precision import Precision
from ...ir.tolerances import column, largest_difference, magnitude, tolerance
from ...kernels.kernel import Binding, Kernel, Params, Problem, all_kernels
from ...kernels.launch import Grid
from ...kernels.launch_workgroups import launch_with_open_group
from ...kernels.node_in_layouts import place_node
from ...layout.kernel_candidates import unsupported
from ...ops.elementwise import run_reference
from ...ops.operator import all_ops
from ...run.execute.single_node_executable import PATTERN, SingleNodeExecutable
from ..case import Array, Case, Shape
from .single_node import large_group, uneven_group
from .walled_run import WalledRun

_MOST_POINTS = 64  # of a kernel's space, spread evenly
_MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Check:
    """One run of a kernel. error: the largest one as a share of what is allowed. problem: '' if it passed."""

    kernel: str
    case: str
    variation: str
    error: float = 0.0
    problem: str = ""
    refused: str = ""


@dataclass(frozen=True)
class _Variation:
    """A case in some sizes, stored in some precision."""

    name: str
    shapes: tuple[Shape, ...]
    precision: Precision = Precision.FP32
    dtype: DType | None = None


Starting = Callable[[Check], None]
"""Told before each run what is about to run: a fault may end the process."""


@dataclass(frozen=True)
class _Bench:
    """Where checks run. closes: walls are closed, too, which ends the process at an access outside of buffers."""

    rt: Runtime
    closes: bool = False
    starting: Starting = lambda check: None


def kernels_of(module: ModuleType) -> list[Kernel]:
    """The kernels that a module registers."""
    return [k for k in all_kernels() if type(k).__module__ == module.__name__]


def cases_of(module: ModuleType) -> list[Case]:
    """The list CASES of a module. PluginError if it is missing, or one of its operators is no kernel's."""
    found = getattr(module, "CASES", None)
    if not isinstance(found, list | tuple) or not found or not all(isinstance(c, Case) for c in found):
        raise PluginError(
            f"{module.__file__} has no list CASES of opalite.kernel.Case, by which its kernels are tested, such as "
            'CASES = [Case(make_operator("Softmax", axis=1, log=False), ["f32[7,12]"])]'
        )
    return list(found)


def check_module(
    module: ModuleType, rt: Runtime, *, closes: bool = False, starting: Starting = lambda check: None
) -> Iterator[Check]:
    """Every check of a module's kernels on the device of `rt`. PluginError if it has none.

    closes: an access outside of buffers ends the process, where the device is a CPU. starting: called before each run.
    """
    cases = cases_of(module)
    kernels = kernels_of(module)
    ops = tuple(op for op in all_ops().values() if op.__module__ == module.__name__)
    if not kernels and not ops:
        raise PluginError(f"{module.__file__} registers no kernel and no operator")
    for case in cases:
        if isinstance(case.op, ops):
            yield check_shape_rule(case)
    for kernel in kernels:
        own = [case for case in cases if type(case.op) is all_ops().get(kernel.op)]
        if not own:
            yield Check(kernel.name, "", "cases", problem=f"no Case in CASES is of its operator, {kernel.op}")
        for case in own:
            yield from check_kernel(kernel, case, rt, closes=closes, starting=starting)


def assert_checks(checks: Sequence[Check]) -> None:
    """AssertionError with the first failed check, or if a kernel refuses all of its cases. For tests."""
    for check in checks:
        assert not check.problem, f"{check.kernel}, {check.variation} of {check.case}: {check.problem}"
    for kernel, why in idle_kernels(checks).items():
        raise AssertionError(f"{kernel} refuses all of its cases ({why}): it was not tested")


def idle_kernels(checks: Sequence[Check]) -> dict[str, str]:
    """Kernels that refuse all of their cases, with a reason."""
    ran = {c.kernel for c in checks if not c.refused}
    return {c.kernel: c.refused for c in checks if c.kernel not in ran}


def check_shape_rule(case: Case) -> Check:
    """Whether an operator's shape rule and its reference agree, and repeat, for all element types that it takes."""
    try:
        for variation in _variations(case):
            arrays = case.arrays(variation.shapes, variation.dtype)
            node = case.node(arrays)
            node.cost()
            outs, again = (run_reference(node.op, node.epilogue, arrays) for _ in range(2))
            for v, a, b in zip(node.outputs, outs, again, strict=False):
                if a.shape != v.shape:
                    raise ShapeError(
                        f"output {v.name} is {v.type} by the shape rule, of shape {a.shape} by the reference"
                    )
                if a.tobytes() != b.tobytes():
                    raise PluginError(f"the reference gives another output {v.name} when it is called again")
    except Exception as e:
        return Check(case.op.name, str(case), "shape rule", problem=_sentence(e))
    return Check(case.op.name, str(case), "shape rule")


def check_kernel(
    kernel: Kernel, case: Case, rt: Runtime, *, closes: bool = False, starting: Starting = lambda check: None
) -> Iterator[Check]:
    """Every check of one kernel on one case, as `check_module`; none after one whose program does not compile."""
    bench = _Bench(rt, closes, starting)
    for variation in _variations(case):
        made = Check(kernel.name, str(case), variation.name)
        try:
            arrays = case.arrays(variation.shapes, variation.dtype)
            node = case.node(arrays, variation.precision)
            if why := unsupported(node, rt.info):
                yield replace(made, refused=why)
                continue
            p = kernel.problem(node, rt.info)
            if why := kernel.refusal(p) or kernel.no_legal_point(p):
                yield replace(made, refused=why)
                continue
            _ask_all(kernel, p)
            every = variation.name == "as given"
            for name, binding, params in _ways(kernel, node, rt, every):
                one = replace(made, variation=f"{variation.name}{name}")
                starting(one)
                large = every and params == kernel.defaults(p)
                error, problem = _run(kernel, node, binding, params, arrays, bench, large)
                yield replace(one, error=error, problem=problem)
        except Exception as e:
            yield replace(made, problem=_sentence(e))
            if isinstance(e, BuildError):
                return


def _ask_all(kernel: Kernel, p: Problem) -> None:
    """Call what only planning calls, so that a wrong result shows here."""
    kernel.seconds(p, p.node.cost())
    for stored, wanted in itertools.permutations((DType.FLOAT32, DType.FLOAT16)):
        kernel.gives(stored, wanted)
        for i in range(len(p.node.inputs)):
            kernel.takes(i, stored, wanted)


def _ways(kernel: Kernel, node: Node, rt: Runtime, every: bool) -> Iterator[tuple[str, Binding, Params]]:
    """The bindings and parameters to run a node with: all of them, or the untuned parameters in every binding."""
    for binding in kernel.bindings(kernel.problem(node, rt.info)):
        placed = place_node(node, binding)
        p = kernel.problem(placed, rt.info)
        layout = "" if placed.y.type.layout.is_row_major else f", {placed.y.type.layout}"
        usual = kernel.defaults(p)
        yield layout, binding, usual
        if every:
            points = [point for point in kernel.points(p) if point != usual]
            for point in points[:: math.ceil(len(points) / _MOST_POINTS) or 1]:
                yield f"{layout}, {', '.join(f'{k}={v}' for k, v in point.items())}", binding, point


def _run(
    kernel: Kernel,
    node: Node,
    binding: Binding,
    params: Params,
    arrays: Sequence[Array | None],
    bench: _Bench,
    large: bool,
) -> tuple[float, str]:
    """(error as a share of the allowed one, problem) of one way to run a node, in all work-groups that it leaves open.

    large: large work-groups, too.
    """
    rt, placed = bench.rt, place_node(node, binding)
    stored = [
        None if a is None or v is None else a.astype(v.type.storage.np).astype(v.dtype.np)
        for a, v in zip(arrays, placed.inputs, strict=True)
    ]
    wanted = run_reference(node.op, node.epilogue, stored)
    given = [None if layout is None else a for a, layout in zip(stored, binding.inputs, strict=True)]
    one = SingleNodeExecutable(rt, placed, given)
    open_launch = launch_with_open_group(kernel.launch(kernel.problem(placed, rt.info), params))
    groups: list[Grid | None] = [None]
    if open_launch is not None:
        groups.append(uneven_group(open_launch.grid, rt.info))
    worst, first = 0.0, None
    for group in groups:
        where = "" if group is None else f"in work-groups of {group}, which tuning may choose: "
        try:
            run = one.prepare(kernel, params, group)
            walled = WalledRun(rt, run)
            error, problem = compare_outputs(node, placed.outputs, walled.run(), wanted)
        except BuildError:
            raise
        except DeviceError as e:
            error, problem = math.inf, str(e)
        if problem:
            return error, where + problem
        worst = max(worst, error)
        if first is None:
            first = walled
            if large and open_launch is not None and (limit := run.group_limit()):
                groups.append(large_group(open_launch.grid, limit, rt.info))
    if bench.closes and first is not None and first.can_close:
        first.run_closed()
    return worst, ""


def compare_outputs(
    node: Node, outputs: Sequence[Value], found: Sequence[Array], wanted: Sequence[Array]
) -> tuple[float, str]:
    """(largest error as a share of the allowed one, problem) of a kernel's outputs beside the reference's."""
    worst = 0.0
    for v, reference, got in zip(outputs, wanted, found, strict=False):
        want = np.asarray(reference).astype(v.dtype.np)
        if got.shape != want.shape:
            return math.inf, f"output {v.name} is of shape {got.shape}, the reference's of {want.shape}"
        allowed = tolerance("node", column(node.precision, v.dtype)) * (magnitude(want) or 1.0)
        difference = largest_difference(got, want)
        if difference > allowed:
            return math.inf, _describe_difference(got, want, allowed, v)
        worst = max(worst, difference / allowed if allowed else 0.0)
    return worst, ""


def _describe_difference(got: Array, want: Array, allowed: float, v: Value) -> str:
    """A sentence on the elements that are wrong: unwritten ones, and the first one with its position."""
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        wrong = ~((np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b)))
    before = np.full(v.type.storage.size, PATTERN, np.uint8).view(v.type.storage.np).astype(v.dtype.np)
    same = np.ascontiguousarray(got).view(np.uint8).reshape(*got.shape, -1) == before.view(np.uint8)
    left = int(np.count_nonzero(wrong & same.all(-1)))
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = f"{int(wrong.sum())} of {want.size} elements of output {v.name} are wrong; at {list(first)} "
    text += f"got {a[first]:.9g}, expected {b[first]:.9g}"
    if left:
        return f"{text}; {left} of them were never written, or are computed of what nothing has written"
    if np.isnan(a[first]) and not np.isnan(b[first]):
        return f"{text}; what lies outside of tensors is NaN in tests: does the kernel read there?"
    return text


def _sentence(e: Exception) -> str:
    return str(e) if isinstance(e, OpaliteError) else describe_fault(e)


# Variations


def _variations(case: Case) -> Iterator[_Variation]:
    """The case as given, in other sizes, and in other element types."""
    given = tuple(() if t is None else t[1] for t in case.types)
    yield _Variation("as given", given)
    for name, shapes in _other_sizes(case, given):
        yield _Variation(name, shapes)
    if any(t is not None and t[0] is DType.FLOAT32 for t in case.types):
        small = next((s for n, s in _other_sizes(case, given) if n == "prime sizes"), given)
        yield _Variation("halves for floats", small, Precision.FP16)
        for dtype in (DType.FLOAT16, DType.FLOAT64):
            if case.epilogue is None and _accepts(case, small, dtype):
                yield _Variation(f"elements of {dtype.short}", small, dtype=dtype)


def _other_sizes(case: Case, given: tuple[Shape, ...]) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    """Shapes in which sizes were replaced: all by primes, else those that can be, one by one; and by ones."""
    fixed = {d for i, shape in zip(case.inputs, given, strict=True) if isinstance(i, np.ndarray) for d in shape}
    sizes = sorted({d for shape in given for d in shape if d > 1} - fixed)
    primes = _primes(sizes)
    if sizes and _fits(case, changed := _replaced(given, primes)):
        yield "prime sizes", changed
    else:
        for size in sizes:
            if _fits(case, changed := _replaced(given, {size: primes[size]})):
                yield f"{primes[size]} in place of {size}", changed
    if not any(isinstance(i, np.ndarray) for i in case.inputs):
        ones = _replaced(given, dict.fromkeys(sizes, 1))
        if sizes and _fits(case, ones):
            yield "sizes of one", ones


def _replaced(shapes: tuple[Shape, ...], by: dict[int, int]) -> tuple[Shape, ...]:
    return tuple(tuple(by.get(d, d) for d in shape) for shape in shapes)


def _fits(case: Case, shapes: tuple[Shape, ...]) -> bool:
    return max(map(math.prod, shapes)) <= _MOST_ELEMENTS and _accepts(case, shapes)


def _accepts(case: Case, shapes: tuple[Shape, ...], dtype: DType | None = None) -> bool:
    """Whether the operator takes inputs of these shapes."""
    try:
        case.node(case.arrays(shapes, dtype))
    except ShapeError:
        return False
    except PluginError:  # a fault of the operator's methods, which the check of these sizes tells
        return True
    return True


def _primes(sizes: Sequence[int]) -> dict[int, int]:
    """A prime above each size, all different."""
    found: dict[int, int] = {}
    for size in sizes:
        above = itertools.count(max(size + 1, max(found.values(), default=0) + 1))
        found[size] = next(n for n in above if all(n % d for d in range(2, math.isqrt(n) + 1)))
    return found
