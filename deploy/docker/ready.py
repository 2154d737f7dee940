"""Ends with 0 where the server at a port of this machine (the first argument, 8000) is ready, with 1 otherwise."""

import sys
import urllib.request

PORT = sys.argv[1] if len(sys.argv) > 1 else "8000"
try:
    urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready", timeout=2)
except OSError:
    sys.exit(1)
