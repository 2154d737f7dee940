"""The Open Inference Protocol over gRPC, and gRPC's health service."""
