"""Packages that import onnxruntime themselves, run on Opalite by `python -m opalite.onnxruntime`."""
