"""OpenCL devices: enumeration, selection, properties, contexts, driver errors."""
