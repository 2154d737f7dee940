"""InferQueue: requests that several sessions, devices or processes take from one bounded queue."""
