"""Requests, responses and errors of the Open Inference Protocol, independent of HTTP and gRPC."""
