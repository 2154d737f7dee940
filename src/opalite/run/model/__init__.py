"""Models of a session: an ONNX file or a bundle, planned and built for the shapes of the inputs."""
