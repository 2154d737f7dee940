"""The probabilities of an SVMClassifier, which onnx's reference evaluator gets wrong, are coupled from all pairs."""

from tests.fuzz.case import case, node, noise

CASE = case(
    opset=17,
    inputs={"x": [7, 3]},
    feeds=[{"x": noise((7, 3))}],
    nodes=[
        node(
            "SVMClassifier",
            ["x"],
            ["label", "shares"],
            domain="ai.onnx.ml",
            kernel_type="RBF",
            kernel_params=[0.5, 0.1, 2.0],
            vectors_per_class=[2, 1, 3],
            support_vectors=noise((18,), "f4", 1).tolist(),
            coefficients=noise((12,), "f4", 2).tolist(),
            rho=[0.1, -0.4, 0.7],
            prob_a=[-0.7, -1.2, -0.3],
            prob_b=[0.2, -0.1, 0.5],
            classlabels_ints=[3, 5, 9],
        )
    ],
    outputs=["label", "shares"],
)
