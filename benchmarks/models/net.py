"""Net: writes an ONNX graph layer by layer, in the form in which PyTorch's exporter writes it.

Weights are seeded and scaled after He et al. (2015), so that activations keep their size through the depth of the
network: results stay finite and depend on the input, and two engines can be compared on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import onnx
from onnx import TensorProto, helper, numpy_helper

Batch = int | str  # a number, or the name of a free dimension

RELU_GAIN = 2.0  # E[relu(v)^2] is half of E[v^2]
SILU_GAIN = 2.2  # likewise, about, for v*sigmoid(v) and for the hard swish
LINEAR_GAIN = 1.0


class Net:
    """A graph under construction. Every method that adds a layer returns the name of its result.

    `fold` leaves batch normalisation inside the convolution's weights, as exporters do for inference. `domains`: of
    operators beside ONNX's own. `drawn`: random numbers that are drawn, and repeated where weights are larger; 0: all.
    """

    def __init__(
        self,
        name: str,
        *,
        opset: int = 13,
        seed: int = 0,
        fold: bool = True,
        domains: Sequence[str] = (),
        drawn: int = 0,
    ) -> None:
        self.name = name
        self.opset = opset
        self.domains = domains
        self.fold = fold
        self.rng = np.random.default_rng(seed)
        self._drawn = self.rng.standard_normal(drawn, np.float32)
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._channels: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[Batch], dtype: int = TensorProto.FLOAT) -> str:
        """A graph input; of an image [N,C,H,W] the channels are remembered."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        if len(shape) == 4 and isinstance(shape[1], int):
            self._channels[name] = shape[1]
        return name

    def constant(self, value: ArrayLike, name: str = "constant", dtype: Any = np.float32) -> str:
        """An initialiser. Lists of axes and shapes pass dtype=np.int64."""
        name = self._fresh(name)
        self._weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        """A one-dimensional int64 initialiser: axes, shapes, sizes."""
        return self.constant(values, "ints", np.int64)

    def random(self, shape: Sequence[int], variance: float, name: str = "weight") -> str:
        """A normally distributed initialiser."""
        deviation = np.float32(np.sqrt(variance))
        if self._drawn.size and math.prod(shape) > self._drawn.size:
            drawn = np.roll(self._drawn, self.rng.integers(self._drawn.size)) * deviation
            return self.constant(np.resize(drawn, shape), name)
        values: NDArray[np.float32] = self.rng.standard_normal(shape, np.float32)
        return self.constant(values * deviation, name)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One node with one result, which has as many channels as the first input."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """One node with several results, whose names may be given as `outputs`."""
        name = self._fresh(kind.lower())
        names = attributes.pop("outputs", None) or ([name] if results == 1 else [f"{name}.{i}" for i in range(results)])
        self._nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        if inputs and inputs[0] in self._channels:
            for n in names:
                self._channels[n] = self._channels[inputs[0]]
        return names

    def channels(self, x: str) -> int:
        """Channels of an image."""
        return self._channels[x]

    def of_channels(self, x: str, channels: int) -> str:
        """x, of which it is then known how many channels it has."""
        self._channels[x] = channels
        return x

    # Convolutions

    def conv(
        self,
        x: str,
        out: int,
        kernel: int | tuple[int, int] = 1,
        *,
        stride: int = 1,
        pad: int | tuple[int, int] | None = None,
        groups: int = 1,
        gain: float = RELU_GAIN,
        bias: bool = True,
    ) -> str:
        """Convolution; `pad` None keeps the size at stride 1."""
        k = (kernel, kernel) if isinstance(kernel, int) else kernel
        p = (k[0] // 2, k[1] // 2) if pad is None else (pad, pad) if isinstance(pad, int) else pad
        per_group = self.channels(x) // groups
        inputs = [x, self.random((out, per_group, *k), gain / (per_group * k[0] * k[1]))]
        if bias:
            inputs.append(self.random((out,), 0.01, "bias"))
        y = self.op(
            "Conv",
            *inputs,
            kernel_shape=k,
            strides=(stride, stride),
            pads=(*p, *p),
            dilations=(1, 1),
            group=groups,
        )
        self._channels[y] = out
        return y

    def conv_bn(self, x: str, out: int, kernel: int | tuple[int, int] = 1, **options: Any) -> str:
        """Convolution and batch normalisation, folded to the convolution's bias if `fold`."""
        y = self.conv(x, out, kernel, bias=self.fold, **options)
        return y if self.fold else self.batch_norm(y)

    def batch_norm(self, x: str) -> str:
        """BatchNormalization with scales around 1 and small means."""
        c = self.channels(x)
        scale = self.constant(self.rng.uniform(0.9, 1.1, c), "scale")
        mean, bias = self.random((c,), 0.01, "mean"), self.random((c,), 0.01, "bias")
        variance = self.constant(self.rng.uniform(0.9, 1.1, c), "variance")
        return self.op("BatchNormalization", x, scale, bias, mean, variance, epsilon=1e-5)

    def conv_transpose(self, x: str, out: int, kernel: int, stride: int) -> str:
        """Transposed convolution without padding or overlap: `kernel` equals `stride`."""
        c = self.channels(x)
        w, b = self.random((c, out, kernel, kernel), RELU_GAIN / c), self.random((out,), 0.01, "bias")
        y = self.op("ConvTranspose", x, w, b, kernel_shape=(kernel, kernel), strides=(stride, stride))
        self._channels[y] = out
        return y

    # Activations

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.op("Relu", x)

    def relu6(self, x: str) -> str:
        """Clip to 0..6."""
        return self.op("Clip", x, self.constant(0, "low"), self.constant(6, "high"))

    def silu(self, x: str) -> str:
        """x * sigmoid(x), as two nodes."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def hard_sigmoid(self, x: str) -> str:
        """clip(x / 6 + 0.5, 0, 1)."""
        return self.op("HardSigmoid", x, alpha=1 / 6)

    def hard_swish(self, x: str) -> str:
        """x * hard_sigmoid(x): HardSwish from opset 14 on, before that two nodes."""
        return self.op("HardSwish", x) if self.opset >= 14 else self.op("Mul", x, self.hard_sigmoid(x))

    def gelu(self, x: str) -> str:
        """x / 2 * (1 + erf(x / sqrt 2)), as five nodes."""
        erf = self.op("Erf", self.op("Div", x, self.constant(np.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.constant(1))), self.constant(0.5))

    # Images

    def add(self, a: str, b: str) -> str:
        """a + b."""
        return self.op("Add", a, b)

    def concat(self, *inputs: str, axis: int = 1) -> str:
        """Concatenation; along channels unless `axis` says otherwise."""
        y = self.op("Concat", *inputs, axis=axis)
        if axis == 1 and all(x in self._channels for x in inputs):
            self._channels[y] = sum(self._channels[x] for x in inputs)
        return y

    def halve(self, x: str) -> tuple[str, str]:
        """The first and the second half of the channels."""
        half = self.channels(x) // 2
        a, b = self.ops("Split", 2, x, self.integers(half, half), axis=1)
        self._channels[a] = self._channels[b] = half
        return a, b

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, *, ceil: bool = False) -> str:
        """Maximum over square windows; `ceil` lets the last window reach past the edge."""
        return self.op(
            "MaxPool", x, kernel_shape=(kernel, kernel), strides=(stride, stride), pads=(pad,) * 4, ceil_mode=int(ceil)
        )

    def average_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        """Mean over square windows, padding counted in."""
        return self.op(
            "AveragePool",
            x,
            kernel_shape=(kernel, kernel),
            strides=(stride, stride),
            pads=(pad,) * 4,
            count_include_pad=1,
        )

    def global_pool(self, x: str) -> str:
        """Mean over height and width."""
        return self.op("GlobalAveragePool", x)

    def squeeze_excite(self, x: str, inner: int, *, swish: bool) -> str:
        """x times a gate computed from its mean: SiLU and sigmoid if `swish`, else ReLU and hard sigmoid."""
        y = self.conv(self.global_pool(x), inner)
        y = self.silu(y) if swish else self.relu(y)
        y = self.conv(y, self.channels(x), gain=LINEAR_GAIN)
        return self.op("Mul", x, self.op("Sigmoid", y) if swish else self.hard_sigmoid(y))

    def upsample(self, x: str) -> str:
        """Twice the height and width, nearest neighbour."""
        scales = self.constant([1, 1, 2, 2], "scales")
        modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self.op("Resize", x, "", scales, **modes)

    # Vectors and sequences

    def gemm(self, x: str, features: int, out: int, *, gain: float = LINEAR_GAIN) -> str:
        """Fully connected layer on [N,features], weights stored transposed."""
        w, b = self.random((out, features), gain / features), self.random((out,), 0.01, "bias")
        return self.op("Gemm", x, w, b, transB=1)

    def linear(self, x: str, features: int, out: int, *, gain: float = LINEAR_GAIN) -> str:
        """Fully connected layer on the last axis of [...,features]: MatMul and Add."""
        w, b = self.random((features, out), gain / features), self.random((out,), 0.01, "bias")
        return self.op("Add", b, self.op("MatMul", x, w))

    def layer_norm(self, x: str, features: int, epsilon: float) -> str:
        """Layer normalisation over the last axis: one node from opset 17 on, before that nine."""
        scale = self.constant(self.rng.uniform(0.9, 1.1, features), "scale")
        bias = self.random((features,), 0.01, "bias")
        if self.opset >= 17:
            return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        square = self.op("Pow", centred, self.constant(2))
        variance = self.op("ReduceMean", square, axes=[-1])
        deviation = self.op("Sqrt", self.op("Add", variance, self.constant(epsilon)))
        return self.op("Add", self.op("Mul", self.op("Div", centred, deviation), scale), bias)

    def reshape(self, x: str, *shape: int) -> str:
        """Reshape; 0 keeps a dimension, -1 takes what is left."""
        return self.op("Reshape", x, self.integers(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        """Permute the axes."""
        return self.op("Transpose", x, perm=perm)

    def classifier(self, x: str, classes: int = 1000) -> str:
        """Global mean, Flatten and a fully connected layer: [N,classes]."""
        return self.gemm(self.op("Flatten", self.global_pool(x), axis=1), self.channels(x), classes)

    def model(self, *outputs: str | onnx.ValueInfoProto) -> onnx.ModelProto:
        """The finished model, checked, with every shape inferred; outputs of other domains come with their types."""
        infos = [helper.make_empty_tensor_value_info(out) if isinstance(out, str) else out for out in outputs]
        # Checking serialises the model, so large weights take part as inputs and join afterwards.
        large = [w for w in self._weights if np.prod(w.dims) > 4096]
        small = [w for w in self._weights if np.prod(w.dims) <= 4096]
        stand_ins = [helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in large]
        graph = helper.make_graph(self._nodes, self.name, self._inputs + stand_ins, infos, small)
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in self.domains)]
        model = helper.make_model(graph, producer_name="opalite-benchmarks", opset_imports=opsets, ir_version=8)
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        onnx.checker.check_model(model)
        del model.graph.input[len(self._inputs) :]
        model.graph.initializer.extend(large)
        return model

    def _fresh(self, name: str) -> str:
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return f"{name}_{count}"
