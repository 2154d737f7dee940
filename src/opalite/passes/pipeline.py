"""The order of the passes."""

from __future__ import annotations

from ..ir.check_graph import check_graph
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph
from ..ir.place import Memory
from ..ir.precision import PrecisionPolicy
from ..kernels.kernel import Tier
from ..layout.assign_layouts import pick_kernels
from ..layout.insert_casts import insert_casts
from ..layout.kernel_candidates import Answers, Measured
from .attention.attention_absorb_transpose import join_attention_inputs, join_attention_output
from .attention.attention_strided_views import order_attention_output, view_attention_inputs
from .attention.fuse_rotary_append import fuse_append
from .attention.grouped_query import share_heads
from .attention.int8_kv_attention import read_bytes
from .attention.recognize_norm_attention import recognise_attention, recognise_layer_norm, recognise_rms_norm
from .attention.recognize_rotary import recognise_rotation
from .attention.split_batch_heads import part_heads
from .cleanup.cse import share_equal
from .cleanup.fold_constants import fold_constants, fold_empty
from .cleanup.hoist_slice import slice_early
from .cleanup.remove_no_ops import drop_empty_inputs, join_movement, remove_noop, sink_reshape
from .cleanup.share_concat_prefix import share_concats
from .data_movement.channels_last import keep_channels_last
from .data_movement.fuse_row_permutations import join_rows, part_rows
from .data_movement.fuse_transposes import join_transposes
from .data_movement.patch_embedding import patch_rows
from .data_movement.sink_row_permutations import meet_rows, raise_rows, sink_rows
from .data_movement.sink_transpose import sink_transpose
from .fusion.fold_affine import fold_affine
from .fusion.fold_pad import fold_pad
from .fusion.fuse_elementwise import fuse_elementwise, fuse_elementwise_within, inline_scalars
from .fusion.fuse_epilogue import link_epilogues
from .fusion.fuse_norm_matmul import fuse_norm
from .fusion.fuse_norm_skinny_matmul import fuse_row_norm
from .quantization.dynamic_activation_quantization import round_rows
from .quantization.fuse_requantize import requantise
from .quantization.integer_products import from_dequantized, widen
from .quantization.keep_quantized_weights import keep_levels
from .quantization.weight_only_quantization import narrow_weights
from .rewrite_driver import Context, Rule, run_rule

PORTABLE: tuple[tuple[str, Rule], ...] = (
    ("fold_constants", fold_constants),
    ("inline_scalars", inline_scalars),
    ("remove_noop", remove_noop),
    ("drop_empty_inputs", drop_empty_inputs),
    ("join_movement", join_movement),
    ("remove_noop", remove_noop),
    ("recognise_layer_norm", recognise_layer_norm),
    ("recognise_rms_norm", recognise_rms_norm),
    ("recognise_rotation", recognise_rotation),
    ("recognise_attention", recognise_attention),
    ("part_heads", part_heads),
    ("join_movement", join_movement),
    ("remove_noop", remove_noop),
    ("slice_early", slice_early),
    ("share_heads", share_heads),
    ("view_attention_inputs", view_attention_inputs),
    ("order_attention_output", order_attention_output),
    ("join_movement", join_movement),
    ("remove_noop", remove_noop),
    ("join_attention_inputs", join_attention_inputs),
    ("join_attention_output", join_attention_output),
    ("join_movement", join_movement),
    ("remove_noop", remove_noop),
    ("sink_transpose", sink_transpose),
    ("fold_pad", fold_pad),
    ("fold_affine", fold_affine),
    ("sink_reshape", sink_reshape),
    ("join_movement", join_movement),
    ("remove_noop", remove_noop),
    ("fuse_elementwise", fuse_elementwise),
    ("sink_reshape", sink_reshape),
    ("join_movement", join_movement),
    ("fold_affine", fold_affine),
    ("fold_constants", fold_constants),
)
"""Device-independent rewrites, in order."""

_SPECIAL = {
    "recognise_layer_norm",
    "recognise_rms_norm",
    "recognise_rotation",
    "recognise_attention",
    "part_heads",
    "share_heads",
    "view_attention_inputs",
    "order_attention_output",
    "join_attention_inputs",
    "join_attention_output",
    "sink_transpose",
}
"""Of those, what general kernels have no use for: they compute the parts."""


def optimise(
    graph: Graph,
    ctx: Context | None = None,
    device: DeviceInfo | None = None,
    policy: PrecisionPolicy | None = None,
    tier: Tier = "optimized",
    low_memory: bool = False,
) -> Context:
    """Run the graph rewrites before placement on `graph` in place.

    device, policy: target device and precision, which decide the arithmetic of quantized products. tier: the tier of
    kernels; patterns without a generic kernel are not fused in the generic tier. low_memory: quantize float weights to
    8 bits.
    """
    ctx = ctx or Context()
    if ctx.check:
        check_graph(graph, "import")
    graph.prune()
    run_rule(graph, "fold_empty", fold_empty, ctx)
    run_rule(graph, "share_equal", share_equal(), ctx)
    run_rule(graph, "requantise", requantise, ctx)
    general_floats = (
        tier == "generic" and device is not None and not device.is_cpu
    )  # GPUs' general kernels have no more
    multiplier = None if general_floats else device
    run_rule(graph, "from_dequantized", from_dequantized(multiplier, policy, tier), ctx)
    run_rule(graph, "widen", widen(multiplier, tier), ctx)
    run_rule(graph, "keep_levels", keep_levels(), ctx)
    if low_memory:
        run_rule(graph, "narrow_weights", narrow_weights(), ctx)
    if policy is not None and policy.rounds:
        run_rule(graph, "round_rows", round_rows(policy), ctx)
    for name, rule in PORTABLE:
        if tier == "generic" and name in _SPECIAL:
            continue
        if tier == "optimized" and rule is fold_pad:
            _move_rows(graph, ctx, device)
        if tier == "optimized" and rule is view_attention_inputs:
            run_rule(graph, "read_bytes", read_bytes(device), ctx)
        if tier == "generic" and rule is fuse_elementwise and device is not None:
            rule = fuse_elementwise_within(device)
        run_rule(graph, name, rule, ctx)
    return ctx


def _move_rows(graph: Graph, ctx: Context, device: DeviceInfo | None) -> None:
    """Fuse row permutations."""
    run_rule(graph, "patch_rows", patch_rows(device), ctx)
    run_rule(graph, "keep_channels_last", keep_channels_last(device), ctx)
    run_rule(graph, "join_transposes", join_transposes, ctx)
    run_rule(graph, "join_rows", join_rows(device), ctx)
    run_rule(graph, "raise_rows", raise_rows, ctx)
    run_rule(graph, "meet_rows", meet_rows, ctx)
    run_rule(graph, "sink_rows", sink_rows, ctx)
    run_rule(graph, "raise_rows", raise_rows, ctx)
    run_rule(graph, "join_rows", join_rows(device), ctx)
    run_rule(graph, "part_rows", part_rows, ctx)
    run_rule(graph, "join_transposes", join_transposes, ctx)
    run_rule(graph, "join_movement", join_movement, ctx)
    run_rule(graph, "remove_noop", remove_noop, ctx)


def place(
    graph: Graph,
    device: DeviceInfo,
    *,
    memory: Memory | None = Memory.BUFFER,
    strict: bool = False,
    measured: Measured | None = None,
    ctx: Context | None = None,
    tier: Tier = "optimized",
    builds: bool = True,
) -> None:
    """Fuse for `device`, choose layouts and kernels, and insert casts: afterwards every value has its Place.

    Nodes keep float32 unless `assign_precision.set_precision` ran before. memory: BUFFER uses no images, IMAGE2D uses
    them wherever a kernel supports them, None where they are expected to be faster. measured: kernel times that replace
    the cost model's. tier: the tier of kernels; builds: whether the generic tier may use optimized kernels for nodes
    without a generic one.
    """
    ctx = ctx or Context()
    if tier == "optimized":
        run_rule(graph, "fuse_row_norm", fuse_row_norm(device, memory), ctx)
        run_rule(graph, "fuse_norm", fuse_norm(device, memory), ctx)
        run_rule(graph, "fuse_append", fuse_append(device, memory), ctx)
    run_rule(graph, "share_concats", share_concats(device), ctx)
    answers = Answers(device)
    run_rule(graph, "link_epilogues", link_epilogues(device, memory, tier, builds, answers), ctx)
    pick_kernels(graph, device, strict, memory, measured, tier, builds, answers)
    insert_casts(graph, device, measured, tier, answers)
    if ctx.check:
        check_graph(graph, "casts")
