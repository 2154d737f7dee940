"""Plans of .onnx files kept in the cache folder, and their keys."""
