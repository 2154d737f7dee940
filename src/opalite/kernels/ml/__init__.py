"""What operators of ai.onnx.ml come down to: tree ensembles, distances, coupled probabilities."""
