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
from ..layout.kernel_candidates import Measured
from .attention.attention_heads import share_kv_heads, split_batch_heads
from .attention.attention_views import (
    absorb_input_transpose,
    absorb_output_transpose,
    order_attention_output,
    view_attention_inputs,
)
from .attention.int8_kv_attention import read_int8_cache
from .attention.recognize_norm_attention import recognize_attention, recognize_layer_norm, recognize_rms_norm
from .attention.rotary import fuse_rotary_append, recognize_rotary
from .cleanup.cse import merge_equal_nodes
from .cleanup.fold_constants import fold_constants, fold_empty
from .cleanup.hoist_slice import hoist_slice
from .cleanup.remove_no_ops import drop_empty_inputs, merge_movements, pick_by_slice, remove_noop, sink_reshape
from .cleanup.share_concat_prefix import share_concat_prefix
from .data_movement.fuse_row_permutations import fuse_row_permutations, unfuse_row_permutation
from .data_movement.lift_one_dimensional import lift_one_dimensional
from .data_movement.move_transposes import move_transposes
from .data_movement.patch_embedding import patches_to_matmul
from .data_movement.sink_row_permutations import align_row_permutations, hoist_row_permutation, sink_row_permutation
from .data_movement.transposes import fuse_transposes
from .fusion.fold_into_conv import fold_affine, fold_pad
from .fusion.fuse_elementwise import fuse_elementwise, fuse_elementwise_within, inline_scalars
from .fusion.fuse_epilogue import fuse_epilogues
from .fusion.fuse_norm_matmul import fuse_norm_matmul, fuse_norm_skinny_matmul
from .fusion.gathered_experts import multiply_picked_matrices
from .fusion.group_norm import recognize_group_norm
from .fusion.lift_scalars import lift_scalars
from .quantization.dynamic_ranges import compute_scalars_in_readers, join_extremes
from .quantization.fuse_requantize import fuse_requantize
from .quantization.integer_products import to_integer_product, widen_integer_product
from .quantization.low_bit_weights import keep_quantized, quantize_activations, quantize_weights
from .rewrite_driver import Context, Rule, run_rule

_TIDY = (merge_movements, remove_noop)

PORTABLE: tuple[tuple[str, Rule], ...] = tuple(
    (rule.__name__, rule)
    for rule in (
        *(fold_constants, inline_scalars, remove_noop, drop_empty_inputs, *_TIDY, multiply_picked_matrices),
        *(recognize_layer_norm, recognize_rms_norm, recognize_group_norm, recognize_rotary, recognize_attention),
        *(split_batch_heads, *_TIDY),
        *(hoist_slice, share_kv_heads, view_attention_inputs, order_attention_output, *_TIDY),
        *(absorb_input_transpose, absorb_output_transpose, *_TIDY),
        *(fold_pad, fold_affine, pick_by_slice, sink_reshape, *_TIDY),
        *(fuse_elementwise, sink_reshape, merge_movements, fold_affine, fold_constants),
    )
)
"""Device-independent rewrites, in order."""

_SPECIAL: tuple[Rule, ...] = (
    *(recognize_layer_norm, recognize_rms_norm, recognize_group_norm, recognize_rotary, recognize_attention),
    split_batch_heads,
    *(share_kv_heads, view_attention_inputs, order_attention_output),
    *(absorb_input_transpose, absorb_output_transpose),
)
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
    run_rule(graph, "merge_equal_nodes", merge_equal_nodes(), ctx)
    run_rule(graph, "fuse_requantize", fuse_requantize, ctx)
    # GPUs' general kernels multiply floats only.
    multiplier = None if tier == "generic" and device is not None and not device.is_cpu else device
    answers = None if multiplier is None else ctx.answers_on(multiplier)
    run_rule(graph, "to_integer_product", to_integer_product(multiplier, policy, tier, answers), ctx)
    run_rule(graph, "widen_integer_product", widen_integer_product(multiplier, tier, answers), ctx)
    run_rule(graph, "keep_quantized", keep_quantized(), ctx)
    if low_memory:
        run_rule(graph, "quantize_weights", quantize_weights(), ctx)
    if policy is not None and policy.rounds:
        run_rule(graph, "quantize_activations", quantize_activations(policy), ctx)
    for name, rule in PORTABLE:
        if tier == "generic" and rule in _SPECIAL:
            continue
        if rule is fold_pad:
            _move_rows(graph, ctx, device, tier)
        if tier == "optimized" and rule is view_attention_inputs:
            run_rule(graph, "read_int8_cache", read_int8_cache(device), ctx)
        if rule is split_batch_heads and ctx.applied.get("recognize_attention"):
            run_rule(graph, "merge_equal_nodes", merge_equal_nodes(), ctx)  # layers share their mask
        if tier == "generic" and rule is fuse_elementwise and device is not None:
            rule = fuse_elementwise_within(device)
        run_rule(graph, name, rule, ctx)
    if tier == "optimized":
        run_rule(graph, "lift_one_dimensional", lift_one_dimensional(device), ctx)
        if ctx.applied.get("lift_one_dimensional"):
            for rule in _TIDY:
                run_rule(graph, rule.__name__, rule, ctx)
        run_rule(graph, "join_extremes", join_extremes(device), ctx)
        run_rule(graph, "compute_scalars_in_readers", compute_scalars_in_readers(device), ctx)
        run_rule(graph, "lift_scalars", lift_scalars(), ctx)
    return ctx


def _move_rows(graph: Graph, ctx: Context, device: DeviceInfo | None, tier: Tier) -> None:
    """Move Transposes and, but for general kernels, fuse row permutations."""
    if tier == "optimized":
        run_rule(graph, "patches_to_matmul", patches_to_matmul(device), ctx)
    run_rule(graph, "move_transposes", move_transposes(device, tier), ctx)
    if tier == "generic":
        return
    run_rule(graph, "fuse_transposes", fuse_transposes, ctx)
    run_rule(graph, "fuse_row_permutations", fuse_row_permutations(device), ctx)
    run_rule(graph, "hoist_row_permutation", hoist_row_permutation, ctx)
    run_rule(graph, "align_row_permutations", align_row_permutations, ctx)
    run_rule(graph, "sink_row_permutation", sink_row_permutation, ctx)
    run_rule(graph, "hoist_row_permutation", hoist_row_permutation, ctx)
    run_rule(graph, "fuse_row_permutations", fuse_row_permutations(device), ctx)
    run_rule(graph, "unfuse_row_permutation", unfuse_row_permutation, ctx)
    run_rule(graph, "fuse_transposes", fuse_transposes, ctx)
    run_rule(graph, "merge_movements", merge_movements, ctx)
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
        run_rule(graph, "fuse_norm_skinny_matmul", fuse_norm_skinny_matmul(device, memory), ctx)
        run_rule(graph, "fuse_norm_matmul", fuse_norm_matmul(device, memory), ctx)
        run_rule(graph, "fuse_rotary_append", fuse_rotary_append(device, memory), ctx)
    run_rule(graph, "share_concat_prefix", share_concat_prefix(device), ctx)
    answers = ctx.answers_on(device)
    run_rule(graph, "fuse_epilogues", fuse_epilogues(device, memory, tier, builds, answers), ctx)
    pick_kernels(graph, device, strict, memory, measured, tier, builds, answers)
    insert_casts(graph, device, measured, tier, answers)
    if ctx.check:
        check_graph(graph, "casts")
