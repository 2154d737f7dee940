"""The server of `opalite serve`: the Open Inference Protocol (v2) over HTTP and gRPC (extra opalite-cl[serve])."""
