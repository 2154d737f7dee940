"""Faults that were found once, each as the edits of the source that bring it back: what mended it is taken out.

`python -m tests.fuzz.mutants` shows that the fuzzer finds them in null mode; faults of kernels alone are not listed.
An edit is a part of a source file that is there once, so that code which changes makes the table change too
(test_mutants.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from .registry import Focus


@dataclass(frozen=True)
class Edit:
    """`old` becomes `new` in a module of opalite."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mend:
    """One fault.

    case: a file of cases/, without ending, that shows it. focus: what a graph should be made of to meet it.
    operators: what it must have for that, one of them at least; () for any graph.
    """

    name: str
    fault: str
    case: str
    focus: Focus
    operators: tuple[str, ...]
    edits: tuple[Edit, ...]


_POOLS = ("AveragePool", "MaxPool", "LpPool", "QLinearAveragePool")
_CONVS = ("Conv", "ConvInteger", "QLinearConv", "FusedConv")
_RESIZE = ("Resize", "Upsample")
_NOTHING_FOLDED = Edit("passes.pipeline", '    run_rule(graph, "fold_empty", fold_empty, ctx)\n', "")


def _mend(
    name: str,
    fault: str,
    case: str,
    focus: Focus,
    operators: tuple[str, ...],
    *edits: tuple[str, str, str] | Edit,
) -> Mend:
    made = tuple(e if isinstance(e, Edit) else Edit(*e) for e in edits)
    return Mend(name, fault, case, focus, operators, made)


MENDS = (
    # Tensors without elements
    _mend(
        "verifier_of_nothing",
        "the memory verifier looks for what a node without elements reads",
        "slice_beside_nothing",
        Focus(("slice", "split", "arithmetic"), "empty"),
        (),
        _NOTHING_FOLDED,
        ("plan.memory.verify_memory_plan", "if near and not outputs:", "if False:"),
    ),
    _mend(
        "mean_of_nothing",
        "the mean of no elements is NaN",
        "mean_of_nothing",
        Focus(("reduce", "global_pool"), "empty"),
        ("ReduceMean", "GlobalAveragePool"),
        ("ops.reduce", 'if x.dtype.kind == "f" and x.size:', 'if x.dtype.kind == "f":'),
    ),
    _mend(
        "hardmax_of_nothing",
        "Hardmax of a tensor without elements is refused",
        "hardmax_of_nothing",
        Focus(("softmax", "layers_of_nothing"), "empty"),
        ("Hardmax",),
        (
            "importer.onnx.activation",
            "    x, axis = _flattened(ctx)\n    if not x.type.count:\n        return ctx.input(0)\n    best",
            "    x, axis = _flattened(ctx)\n    best",
        ),
    ),
    _mend(
        "concat_of_nothing",
        "tensors without elements are not joined where their other sizes differ",
        "concat_of_nothing",
        Focus(("concat_of_nothing",)),
        ("Concat",),
        ("importer.onnx.shape", "elif math.prod(_other_sizes", "elif False and math.prod(_other_sizes"),
    ),
    _mend(
        "passes_on_nothing",
        "passes and kernels meet nodes that have nothing to compute, and divide by their sizes",
        "product_of_no_columns",
        Focus(("layers_of_nothing",), "empty"),
        (),
        _NOTHING_FOLDED,
    ),
    # Windows
    _mend(
        "window_beyond_the_input",
        "pooling whose padded input is smaller than the window is refused",
        "window_beyond_the_input",
        Focus(("max_pool", "average_pool", "lp_pool")),
        _POOLS,
        ("ops.pool", "op.ceil_mode or room < 0", "op.ceil_mode"),
        ("ops.pool", "all(d >= 0 for d in out)", "all(d >= 1 for d in out)"),
    ),
    _mend(
        "ceil_mode_outside",
        "with ceil_mode a window that starts beyond the input counts",
        "ceil_mode_at_the_end",
        Focus(("max_pool", "average_pool", "lp_pool")),
        _POOLS,
        ("ops.pool", "out.append(count - 1 if beyond else count)", "out.append(count)"),
    ),
    _mend(
        "ceil_mode_with_auto_pad",
        "ceil_mode is left out where auto_pad is given",
        "ceil_mode_at_the_end",
        Focus(("max_pool", "average_pool", "lp_pool")),
        _POOLS,
        (
            "importer.onnx.conv",
            'ceil_mode=ctx.flag("ceil_mode"),',
            'ceil_mode=ctx.flag("ceil_mode") and not window.auto,',
        ),
    ),
    _mend(
        "divisor_of_a_large_window",
        "the average over a window larger than the padded input is divided by the padded input",
        "divisor_of_a_large_window",
        Focus(("average_pool",)),
        _POOLS,
        ("importer.onnx.conv", "if count_pads and ctx.version < 19", "if False and ctx.version < 19"),
    ),
    _mend(
        "same_padding_that_skips",
        "pooling with auto_pad SAME does not centre windows that are smaller than the stride",
        "same_padding_that_skips",
        Focus(("average_pool", "lp_pool")),
        _POOLS,
        ("importer.onnx.conv", "if not skips:", "if True:"),
    ),
    _mend(
        "maximum_beside_nan",
        "NaN wins in MaxPool where it comes first",
        "max_pool_of_nan",
        Focus(("max_pool",), "special"),
        _POOLS,
        ("ops.pool", " | (best != best))", ")"),
    ),
    _mend(
        "output_shape_beyond_the_filters",
        "ConvTranspose with an output_shape beyond its filters' reach puts zeros on both sides",
        "output_shape_beyond_the_filters",
        Focus(("conv_transpose",)),
        ("ConvTranspose",),
        ("importer.onnx.conv", "if target is not None:  # an output beyond", "if False:  # an output beyond"),
    ),
    # Resize
    _mend(
        "aligned_corners_by_scale",
        "Resize by a fractional scale with align_corners: the last pixels are off",
        "resize_aligned_by_scale",
        Focus(("resize",)),
        _RESIZE,
        ("ops.resize_weights", "at * (n - 1) / (m - 1) if count", "at * (n - 1) / (scale * n - 1) if count"),
    ),
    _mend(
        "resize_to_its_own_size",
        "Resize by a scale that changes no size moves values",
        "resize_to_its_own_size",
        Focus(("resize",)),
        _RESIZE,
        (
            "importer.onnx.image",
            "if tuple(sizes) == x.shape and roi is None:",
            "if tuple(sizes) == x.shape and roi is None and all(s == 1 for s in scales):",
        ),
    ),
    _mend(
        "antialias_of_unchanged_axes",
        "the filter of Resize with antialias runs along axes that keep their size",
        "resize_antialias_one_axis",
        Focus(("resize",)),
        _RESIZE,
        ("importer.onnx.image", "if antialias:", "if False:"),
    ),
    _mend(
        "nearest_untold",
        "Upsample and Resize 10 round up only where every axis shrinks",
        "nearest_untold",
        Focus(("resize",)),
        _RESIZE,
        ("ops.resize_weights", "if op.scales[axis] < 1 else", "if all(s <= 1 for s in op.scales) else"),
    ),
    # Passes that changed values or failed
    _mend(
        "rows_of_an_instance_norm",
        "the fusion of a normalisation and a product takes an instance normalisation for one of rows",
        "instance_norm_matmul",
        Focus(("norm_then_product",)),
        ("InstanceNormalization", "GroupNormalization"),
        ("passes.fusion.fuse_norm_matmul", " or node.op.kind not in kinds or", " or"),
        ("passes.fusion.fuse_norm_matmul", "return node.op.axis ==", "return node.op.axis % len(node.x.shape) =="),
    ),
    _mend(
        "blind_attention",
        "a row of scores that are all -inf is zero where a Softmax is recognised as attention",
        "attention_that_sees_nothing",
        Focus(("attention_written_out", "heads_of_one_product"), "special"),
        ("Softmax",),
        ("passes.attention.recognize_norm_attention", "blind_nan=repaired is None", "blind_nan=False"),
    ),
    _mend(
        "infinite_scales_in_filters",
        "scales that are not finite go into a convolution's filters",
        "infinite_scales_of_a_conv",
        Focus(("scaled_conv",), "special"),
        _CONVS,
        (
            "passes.fusion.fold_into_conv",
            "if not peeled or not np.all(np.isfinite(scale)) or not np.all(np.isfinite(shift)):",
            "if not peeled:",
        ),
    ),
    _mend(
        "padding_under_ceil_mode",
        "a Pad goes into a pooling with ceil_mode, which then counts windows in it",
        "padding_under_ceil_mode",
        Focus(("padded_conv",)),
        _POOLS,
        ("passes.fusion.fold_into_conv", "if isinstance(op, Pool) and op.ceil_mode:", "if False:"),
    ),
    _mend(
        "packed_views_of_doubles",
        "a Reshape of doubles is packed on devices that do not compute with doubles",
        "doubles_without_fp64",
        Focus(("pooled_features",), dtype="f8"),
        (),
        (
            "layout.kernel_candidates",
            "    if x.dtype is DType.FLOAT64 and not device.fp64:\n        return options\n",
            "",
        ),
    ),
    # Numbers and indices
    _mend(
        "slices_from_before_the_start",
        "a backward slice that starts before the first element is empty",
        "slice_from_before_the_start",
        Focus(("slice",)),
        ("Slice",),
        ("importer.onnx.shape", "if step < 0:", "if False:"),
    ),
    _mend(
        "padding_cut_off",
        "a Pad that cuts off more than there is is refused",
        "padding_cut_off",
        Focus(("pad",)),
        ("Pad",),
        ("importer.onnx.shape", 'if missing > 0 and mode == "constant":', "if False:"),
    ),
    _mend(
        "condition_longer_than_the_axis",
        "Compress counts positions beyond the axis among those it takes",
        "condition_longer_than_the_axis",
        Focus(("compress",)),
        ("Compress",),
        (
            "importer.onnx.index",
            "np.flatnonzero(ctx.const(1)[: x.shape[a]])",
            "np.flatnonzero(ctx.const(1))[: x.shape[a]]",
        ),
    ),
    _mend(
        "unsorted_unique",
        "Unique with sorted=0 sorts",
        "unique_unsorted",
        Focus(("unique",)),
        ("Unique",),
        ("importer.host.numeric_ops", "if not is_sorted:", "if False:"),
    ),
    _mend(
        "scale_of_zeros",
        "the scale of a dynamically quantised tensor of zeros is 0",
        "scale_of_zeros",
        Focus(("dynamic_quantize",)),
        ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM"),
        ("importer.onnx.quantize", "return where(span.eq(0), 1.0, span)", "return span"),
    ),
    _mend(
        "powers_of_integers",
        "squares and cubes of integers by a float exponent end at the type's limits",
        "integer_power_by_float",
        Focus(("integer_power",)),
        ("Pow",),
        ("importer.onnx.math", "exponent.reshape(()) in (2, 3):", "exponent.reshape(()) in ():"),
    ),
    _mend(
        "inference_of_unknown_types",
        "onnx's inference of EyeLike and others ends the process where a type is not known",
        "eye_behind_an_unknown_type",
        Focus(("eye_like",)),
        ("EyeLike",),
        ("importer.proto.apply_edits", 'FRAGILE = frozenset(("DictVectorizer", "EyeLike",', "FRAGILE = frozenset(("),
    ),
    _mend(
        "probabilities_of_support_vectors",
        "the probabilities of an SVMClassifier are those of onnx's reference evaluator, which are wrong",
        "probabilities_of_support_vectors",
        Focus(("support_vectors",)),
        ("SVMClassifier",),
        ("importer.ml.linear_and_scaling", '@onnx_op("SVMClassifier", domain=ML)\n', ""),
    ),
    _mend(
        "literals_beside_halves",
        "an attribute beside halves is rounded to a half",
        "attribute_that_is_no_half",
        Focus(("function",)),
        ("ThresholdedRelu", "HardSwish"),
        (
            "expr.expression",
            "np.asarray(a.value, _held(a.dtype))",
            "_widened(np.asarray(a.value, a.dtype.np))",
        ),
    ),
)
