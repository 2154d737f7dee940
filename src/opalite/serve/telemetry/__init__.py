"""Observers of the engine: Prometheus metrics, logs and OpenTelemetry spans."""
