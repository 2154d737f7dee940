"""Reading of .tflite files to the graphs that the walk imports."""
