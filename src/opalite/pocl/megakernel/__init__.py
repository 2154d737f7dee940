"""Step loops: many launches as one, whose workers, and the calling thread, walk down a table of steps."""
