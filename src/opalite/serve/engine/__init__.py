"""The inference engine: model repository, queues, dynamic batching and worker processes."""
