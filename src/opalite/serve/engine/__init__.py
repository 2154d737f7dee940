"""Models, queues, batches and worker processes behind the front that speaks a protocol."""
