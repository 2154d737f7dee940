"""The Open Inference Protocol over gRPC: what Triton's and KServe's clients call, and gRPC's own health service."""
