"""Unsupported operators of onnxruntime's own domains, with reasons; docs/contrib.md lists them."""

from __future__ import annotations

MS = "com.microsoft"
NHWC = "com.ms.internal.nhwc"

_NVIDIA = "it is a kernel for NVIDIA's GPUs that onnxruntime's tools put in place of portable operators"
_WEBGPU = "onnxruntime fuses it for WebGPU within a session; models do not hold it"
_PADDING = "it works on sequences without their padding, by kernels for NVIDIA's GPUs"
_PAGES = "it reads caches in pages, which a server for NVIDIA's GPUs manages"
_LAYOUT = "its integers have the layout of cuBLASLt, for NVIDIA's GPUs"
_REPLAY = "it takes back tokens that speculative decoding has refused, by states of onnxruntime-genai on NVIDIA's GPUs"
_FLOAT8 = "it multiplies floats of 4 or 8 bits in blocks, on NVIDIA's GPUs"
_PACKED = "its weights are packed for one engine: quantise the model with MatMulNBits"
_OTHER = "it holds a program for another engine"
_RARE = "nothing here computes it"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "DecoderAttention"), _NVIDIA),
    **dict.fromkeys(("GatedRelativePositionBias", "LongformerAttention", "RMSNormRotary"), _NVIDIA),
    **dict.fromkeys(("DynamicSparseAttention", "SparseAttentionIndexer", "HyperConnectionLowRankMix"), _NVIDIA),
    **dict.fromkeys(("MatMulNBitsMlp", "MatMulNBitsQkv", "MatMulNBitsQLoRA"), _WEBGPU),
    **dict.fromkeys(("RemovePadding", "RestorePadding", "PackedAttention", "PackedMultiHeadAttention"), _PADDING),
    **dict.fromkeys(("MatMulPacked", "MoEPacked"), _PACKED),
    **dict.fromkeys(("PagedAttention", "SparsePagedAttention"), _PAGES),
    **dict.fromkeys(("PackedSparseAttentionIndexer", "PackedSparseAttentionIndexerMerge"), _PAGES),
    **dict.fromkeys(("QOrderedAttention", "QOrderedGelu", "QOrderedLayerNormalization", "QOrderedMatMul"), _LAYOUT),
    **dict.fromkeys(("QOrderedLongformerAttention", "QuantizeWithOrder", "DequantizeWithOrder"), _LAYOUT),
    **dict.fromkeys(
        ("ConvStateReplay", "GatedDeltaNetStateReplay", "Mamba2Verify", "SpeculativePrefixCommit"), _REPLAY
    ),
    **dict.fromkeys(("GemmFloat8", "MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight"), _FLOAT8),
    **dict.fromkeys(("QuantizeBFP", "DequantizeBFP", "MatMulFpQ4", "GatherPacked"), _PACKED),
    **dict.fromkeys(("EPContext", "Snpe"), _OTHER),
    "RouterGateUpProj": "it is fused for one family of experts, on NVIDIA's GPUs: export the model with MoE or QMoE",
    **dict.fromkeys(("AttnLSTM", "WordConvEmbedding", "MaxpoolWithMask", "SparseAttention", "GatedDeltaNet"), _RARE),
    **dict.fromkeys(("VarlenCausalConvWithState", "VarlenNGramHashMapping"), _RARE),
    "SparseToDenseMatMul": "sparse tensors that arrive at a run are not supported",
}
"""Reasons by operator of domain com.microsoft."""


def unsupported_reason(op_type: str, domain: str) -> str | None:
    """Return the reason why the operator is unsupported; None if it is not listed."""
    if domain == NHWC:
        return "operators with channels last are made for one engine within a session; models do not hold them"
    return REFUSED.get(op_type) if domain == MS else None
