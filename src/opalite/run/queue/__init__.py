"""InferQueue: a bounded queue of requests for several sessions, devices or processes."""
