"""Ways to run an executable: queue, replay, megakernel, persistent kernel, host call."""
