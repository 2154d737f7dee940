"""Values that runs take and return: OrtValue, IOBinding, DLPack."""
