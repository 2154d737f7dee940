"""Sessions: programs on a device, profiled and verified."""
