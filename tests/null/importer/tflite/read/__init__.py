"""Reading of .tflite files."""
