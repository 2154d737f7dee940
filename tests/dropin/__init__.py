"""Code written for onnxruntime, run with onnxruntime and with Opalite: the same results, the same kinds of errors."""
