"""Constants: arrays loaded on use, quantized constants, content hashes."""
