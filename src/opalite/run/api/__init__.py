"""The parts of onnxruntime's API around a session: options, providers, logging, devices, values."""
