"""Predictions of scikit-learn's models, converted by skl2onnx."""

import sys

import numpy as np
import onnxruntime as rt
from skl2onnx import to_onnx
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

x, y = make_classification(200, 8, n_informative=5, n_classes=3, random_state=0)
u, v = make_regression(200, 8, random_state=0)
x, u = x.astype(np.float32), u.astype(np.float32)
models = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y),
    "boosting": GradientBoostingClassifier(n_estimators=10, random_state=0).fit(x, y),
    "neighbours": KNeighborsClassifier().fit(x, y),
    "mlp": MLPClassifier((16,), max_iter=50, random_state=0).fit(x, y),
    "svc": SVC(probability=True, random_state=0).fit(x, y),
    "forest": RandomForestRegressor(10, random_state=0).fit(u, v),
}
found = {}
for name, model in models.items():
    data = u if name == "forest" else x
    converted = to_onnx(model, data[:1], options=None if name == "forest" else {id(model): {"zipmap": False}})
    session = rt.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, value in zip(
        session.get_outputs(), session.run(None, {session.get_inputs()[0].name: data}), strict=True
    ):
        found[f"{name}_{output.name}"] = value
np.savez(sys.argv[1], **found)
