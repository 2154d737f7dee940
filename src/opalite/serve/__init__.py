"""`opalite serve`: models behind the Open Inference Protocol (v2), over HTTP and gRPC; the extra opalite-cl[serve]."""
