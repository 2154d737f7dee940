"""What a server shows of itself: metrics for Prometheus, logs, OpenTelemetry's spans; each a Watcher of the engine."""
