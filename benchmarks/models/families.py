"""One-operator models of every operator family, in shapes of real networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .family_builder import (
    MICROSOFT,
    Array,
    Given,
    Step,
    attention,
    branch_by_data,
    c,
    chain,
    const,
    conv,
    generator,
    grid,
    ints,
    layer,
    loop,
    nbits,
    nms,
    qdq,
    quantized_linear,
    rand8,
    recurrent,
    rois,
    step,
    w,
    x,
)


@dataclass(frozen=True)
class Row:
    """A model by name, made when called for."""

    name: str
    make: Callable[[], tuple[bytes, dict[str, Array]]]


_IMAGE = (1, 64, 56, 56)


def _declared() -> Iterator[tuple[str, Callable[[], Sequence[Step]]]]:
    """Name, and the nodes, of each row."""
    yield "conv 3x3 stem stride 2, 224²", lambda: [conv((1, 3, 224, 224), 32, 3, stride=2)]
    yield "conv 7x7 stem stride 2, 224²", lambda: [conv((1, 3, 224, 224), 64, 7, stride=2)]
    yield "conv 3x3 64 to 64, 56²", lambda: [conv(_IMAGE, 64, 3)]
    yield "conv 3x3 256 to 256, 14²", lambda: [conv((1, 256, 14, 14), 256, 3)]
    yield "conv 3x3 512 to 512, 7²", lambda: [conv((1, 512, 7, 7), 512, 3)]
    yield "conv 1x1 96 to 24, 56²", lambda: [conv((1, 96, 56, 56), 24, 1)]
    yield "conv 1x1 stride 2 256 to 512, 28²", lambda: [conv((1, 256, 28, 28), 512, 1, stride=2)]
    yield "conv 3x3 grouped by 32, 28²", lambda: [conv((1, 256, 28, 28), 256, 3, group=32)]
    yield "conv 3x3 dilated 12, 28²", lambda: [conv((1, 128, 28, 28), 64, 3, dilation=12)]
    yield "depthwise 3x3 144, 56²", lambda: [conv((1, 144, 56, 56), 144, 3, group=144)]
    yield "depthwise 5x5 stride 2, 28²", lambda: [conv((1, 240, 28, 28), 240, 5, stride=2, group=240)]
    yield "depthwise 7x7 96, 56²", lambda: [conv((1, 96, 56, 56), 96, 7, group=96)]
    yield "depthwise 31x31 64, 28²", lambda: [conv((1, 64, 28, 28), 64, 31, group=64)]
    yield "conv 1d 9 256, 400", lambda: [conv((1, 256, 400), 256, 9)]
    yield "conv 1d stride 5 1 to 128, 16000", lambda: [conv((1, 1, 16000), 128, 10, stride=5, pad=0)]
    yield "conv 3d 3³ 16 to 32, 16×28²", lambda: [conv((1, 16, 16, 28, 28), 32, 3)]
    yield (
        "transposed 2x2 stride 2 128 to 64, 28²",
        lambda: [conv((1, 128, 28, 28), 64, 2, "ConvTranspose", stride=2, pad=0)],
    )
    yield (
        "transposed 4x4 stride 2 64 to 32, 28²",
        lambda: [conv((1, 64, 28, 28), 32, 4, "ConvTranspose", stride=2, pad=1)],
    )
    yield (
        "transposed 1d 16 stride 8 128 to 64, 200",
        lambda: [conv((1, 128, 200), 64, 16, "ConvTranspose", stride=8, pad=4)],
    )
    yield (
        "transposed 3d 2³ stride 2 32 to 16, 8×14²",
        lambda: [conv((1, 32, 8, 14, 14), 16, 2, "ConvTranspose", stride=2, pad=0)],
    )
    yield "QDQ conv 3x3 64 to 64, 28²", lambda: qdq("Conv", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4)
    yield (
        "QLinearConv 3x3 64 to 64, 28²",
        lambda: [quantized_linear("QLinearConv", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4)],
    )
    yield (
        "ConvInteger 1x1 128 to 128, 28²",
        lambda: [step("ConvInteger", rand8((1, 128, 28, 28)), const(rand8((128, 128, 1, 1))), c(120, np.uint8))],
    )
    yield (
        "QLinearConv depthwise 3x3 96, 28²",
        lambda: [quantized_linear("QLinearConv", (1, 96, 28, 28), (96, 1, 3, 3), pads=[1] * 4, group=96)],
    )
    yield "MatMul 128×768 by 768×768", lambda: [step("MatMul", x(128, 768), w(768, 768))]
    yield "MatMul 1×1024 by 1024×1000", lambda: [step("MatMul", x(1, 1024), w(1024, 1000))]
    yield "Gemm transposed 32×512 by 512×256", lambda: [step("Gemm", x(32, 512), w(256, 512), w(256), transB=1)]
    yield "MatMul of two inputs 12×128×64", lambda: [step("MatMul", x(1, 12, 128, 64), x(1, 12, 64, 128))]
    yield (
        "MatMulInteger 64×512 by 512×512",
        lambda: [
            step(
                "MatMulInteger",
                rand8((64, 512)),
                const(rand8((512, 512), np.int8)),
                c(128, np.uint8),
                c(0, np.int8),
            )
        ],
    )
    yield (
        "MatMulInteger of two inputs 64×512×512",
        lambda: [
            step(
                "MatMulInteger",
                rand8((64, 512)),
                rand8((512, 512), np.uint8),
                c(128, np.uint8),
                c(128, np.uint8),
            )
        ],
    )
    yield (
        "DynamicQuantizeLinear, MatMulInteger 64×512×512",
        lambda: [
            step("DynamicQuantizeLinear", x(64, 512), outputs=3),
            step("MatMulInteger", 0, const(rand8((512, 512), np.int8))),
            step("Cast", 1, to=1),
        ],
    )
    yield "QDQ MatMul 64×512×512", lambda: qdq("MatMul", (64, 512), (512, 512))
    yield "QLinearMatMul 64×512×512", lambda: [quantized_linear("QLinearMatMul", (64, 512), (512, 512))]
    yield "MatMulNBits 1×1024×1024", lambda: [nbits(1, 1024, 1024)]
    yield "MatMulNBits 64×1024×1024", lambda: [nbits(64, 1024, 1024)]
    yield "attention of parts, 197 tokens, 6 heads", lambda: attention(197, 384, 6)
    yield (
        "MultiHeadAttention 128 tokens, 12 heads",
        lambda: [
            step("MultiHeadAttention", *(x(1, 128, 768, scale=s) for s in (1, 2, 3)), num_heads=12, domain=MICROSOFT)
        ],
    )
    yield "feed-forward of 197 tokens, 384", lambda: layer(197, 384)
    yield "LSTM 100 steps, 128 to 256", lambda: [recurrent("LSTM", 100, 1, 128, 256)]
    yield "LSTM both ways 50 steps, batch 8, 128", lambda: [recurrent("LSTM", 50, 8, 128, 128, both=True)]
    yield "LSTM 1 step 64", lambda: [recurrent("LSTM", 1, 1, 64, 64)]
    yield "GRU 100 steps, 64 to 128", lambda: [recurrent("GRU", 100, 1, 64, 128)]
    yield "RNN 100 steps, 64 to 128", lambda: [recurrent("RNN", 100, 1, 64, 128)]
    yield (
        "MaxPool 3x3 stride 2, 112²",
        lambda: [step("MaxPool", x(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)],
    )
    yield "MaxPool 5x5, 20²", lambda: [step("MaxPool", x(1, 128, 20, 20), kernel_shape=[5, 5], pads=[2] * 4)]
    yield (
        "MaxPool with positions 2x2, 56²",
        lambda: [step("MaxPool", x(*_IMAGE), outputs=2, kernel_shape=[2, 2], strides=[2, 2])],
    )
    yield "AveragePool 3x3, 56²", lambda: [step("AveragePool", x(*_IMAGE), kernel_shape=[3, 3], pads=[1] * 4)]
    yield "GlobalAveragePool 512, 14²", lambda: [step("GlobalAveragePool", x(1, 512, 14, 14))]
    yield "LayerNormalization 197×384", lambda: [step("LayerNormalization", x(1, 197, 384), w(384), w(384), axis=-1)]
    yield "InstanceNormalization 64, 56²", lambda: [step("InstanceNormalization", x(*_IMAGE), w(64), w(64))]
    yield (
        "GroupNormalization by 8 of 64, 56²",
        lambda: [
            step("Reshape", x(*_IMAGE), c([1, 8, -1], np.int64)),
            step("InstanceNormalization", 0, w(8), w(8)),
            step("Reshape", 1, c(_IMAGE, np.int64)),
        ],
    )
    yield (
        "BatchNormalization 64, 56²",
        lambda: [step("BatchNormalization", x(*_IMAGE), w(64), w(64), w(64), c(np.ones(64)))],
    )
    yield "LRN 64, 56²", lambda: [step("LRN", x(*_IMAGE), size=5)]
    yield "Softmax of 1000, 64 rows", lambda: [step("Softmax", x(64, 1000), axis=-1)]
    yield "Softmax of channels 21, 65²", lambda: [step("Softmax", x(1, 21, 65, 65), axis=1)]
    yield "ReduceMean of rows 197×384", lambda: [step("ReduceMean", x(1, 197, 384), c([-1], np.int64))]
    yield "ReduceMax of channels 64, 56²", lambda: [step("ReduceMax", x(*_IMAGE), c([1], np.int64))]
    yield "ReduceLogSumExp of rows 64×1000", lambda: [step("ReduceLogSumExp", x(64, 1000), c([-1], np.int64))]
    yield "ArgMax of channels 21, 65²", lambda: [step("ArgMax", x(1, 21, 65, 65), axis=1)]
    yield "CumSum of 64×1000", lambda: [step("CumSum", x(64, 1000), c(1, np.int64))]
    yield "TopK 100 of 8400", lambda: [step("TopK", x(1, 8400), c([100], np.int64), outputs=2)]
    yield "TopK all of 2000", lambda: [step("TopK", x(1, 2000), c([2000], np.int64), outputs=2)]
    yield "Gather 128 rows of 768", lambda: [step("Gather", w(30000, 768), ints(0, 30000, 1, 128))]
    yield "GatherElements 64×1000", lambda: [step("GatherElements", x(64, 1000), ints(0, 64, 64, 1000), axis=0)]
    yield "GatherND 500 of 64×64×32", lambda: [step("GatherND", x(64, 64, 32), ints(0, 64, 500, 2))]
    yield "ScatterND 200 rows of 1000×64", lambda: [step("ScatterND", x(1000, 64), ints(0, 1000, 200, 1), x(200, 64))]
    yield (
        "ScatterElements add 64×1000",
        lambda: [step("ScatterElements", x(64, 1000), ints(0, 64, 64, 1000), x(64, 1000), axis=0, reduction="add")],
    )
    yield "Resize linear 2, 40²", lambda: [step("Resize", x(1, 64, 40, 40), None, c([1, 1, 2, 2]), mode="linear")]
    yield (
        "Resize cubic to 96 of 64²",
        lambda: [step("Resize", x(1, 16, 64, 64), None, c([1, 1, 1.5, 1.5]), mode="cubic")],
    )
    yield "Resize nearest 2, 40²", lambda: [
        step("Resize", x(1, 64, 40, 40), None, c([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")
    ]  # fmt: skip
    yield "GridSample 32, 64²", lambda: [step("GridSample", x(1, 32, 64, 64), grid(64, 64))]
    yield "RoiAlign 64 of 32 channels", lambda: [
        step("RoiAlign", x(1, 32, 50, 50), *rois(64), output_height=7, output_width=7, sampling_ratio=2,
             spatial_scale=0.25)
    ]  # fmt: skip
    yield "MaxRoiPool 32 of 32 channels", lambda: [
        step("MaxRoiPool", x(1, 32, 50, 50),
             Given(np.concatenate([np.zeros((32, 1), np.float32), rois(32)[0].array], 1)),
             pooled_shape=[7, 7], spatial_scale=0.25)
    ]  # fmt: skip
    yield "NonMaxSuppression 1000 boxes, 1 class", lambda: [nms(1000, 1)]
    yield "NonMaxSuppression 2000 boxes, 20 classes", lambda: [nms(2000, 20)]
    yield "Transpose to channels last 64, 56²", lambda: [step("Transpose", x(*_IMAGE), perm=[0, 2, 3, 1])]
    yield "Concat of two 64, 56²", lambda: [step("Concat", x(*_IMAGE), x(*_IMAGE, scale=2), axis=1)]
    yield (
        "Slice every second 64, 56²",
        lambda: [
            step(
                "Slice",
                x(*_IMAGE),
                c([0, 0], np.int64),
                c([56, 56], np.int64),
                c([2, 3], np.int64),
                c([2, 2], np.int64),
            )
        ],
    )
    yield (
        "Pad reflected 3, 56²",
        lambda: [step("Pad", x(*_IMAGE), c([0, 0, 3, 3, 0, 0, 3, 3], np.int64), mode="reflect")],
    )
    yield "DepthToSpace 2 64, 56²", lambda: [step("DepthToSpace", x(*_IMAGE), blocksize=2)]
    yield "elementwise Add, 64×56²", lambda: [step("Add", x(*_IMAGE), x(*_IMAGE, scale=2))]
    yield (
        "elementwise Erf-GELU 197×1536",
        lambda: [
            step("Div", x(1, 197, 1536), c(1.4142135)),
            step("Erf", 0),
            step("Add", 1, c(1.0)),
            step("Mul", 2, c(0.5)),
        ],
    )
    yield "elementwise Sin, Exp 64×1000", lambda: [step("Sin", x(64, 1000)), step("Exp", 0)]
    yield (
        "elementwise int64 Add, Mul 1×4096",
        lambda: [
            step("Add", ints(0, 1000, 1, 4096), c(3, np.int64)),
            step("Mul", 0, c(7, np.int64)),
        ],
    )
    yield (
        "Where by a mask 12×128²",
        lambda: [step("Where", Given(generator().random((1, 1, 128, 128)) < 0.5), x(1, 12, 128, 128), c(-1e9))],
    )
    yield (
        "Cast to uint8 and back 3×224²",
        lambda: [
            step("Cast", ints(0, 255, 1, 3, 224, 224, dtype=np.uint8), to=1),
            step("Mul", 0, c(1 / 255)),
        ],
    )
    yield "QuantizeLinear 64, 56²", lambda: [step("QuantizeLinear", x(*_IMAGE), c(0.02), c(128, np.uint8))]
    yield "Einsum bhwc,hkc->bhwk", lambda: [step("Einsum", x(12, 14, 14, 64), w(14, 14, 64), equation="bhwc,hkc->bhwk")]
    yield "DFT 64×512", lambda: [step("DFT", x(64, 512, 1), None, c(1, np.int64))]
    yield "STFT 16000 by 160 of 400", lambda: [step("STFT", x(1, 16000, 1), c(160, np.int64), c(np.hanning(400)))]
    yield "RotaryEmbedding 128 tokens, 8×64", lambda: [
        step("RotaryEmbedding", x(1, 8, 128, 64), c(np.arange(128)[None], np.int64), w(128, 32), w(128, 32),
             domain=MICROSOFT)
    ]  # fmt: skip
    yield "SkipLayerNormalization 128×768", lambda: [
        step("SkipLayerNormalization", x(1, 128, 768), x(1, 128, 768, scale=2), w(768), w(768), w(768),
             domain=MICROSOFT)
    ]  # fmt: skip
    yield "NonZero of 64×64", lambda: [step("NonZero", Given((generator().random((64, 64)) < 0.3).astype(np.float32)))]
    yield "OneHot 128 of 1000", lambda: [step("OneHot", ints(0, 1000, 128), c(1000, np.int64), c([0, 1]))]
    yield "Col2Im 2x2, 32²", lambda: [step("Col2Im", x(1, 64, 1024), c([33, 33], np.int64), c([2, 2], np.int64))]


def rows() -> list[Row]:
    """Every row."""
    made = [Row(name, lambda steps=steps: chain(*steps())) for name, steps in _declared()]  # type: ignore[misc]
    return [*made, Row("If, a branch by data", branch_by_data), Row("Loop 32 steps of 256×256", lambda: loop(32))]
