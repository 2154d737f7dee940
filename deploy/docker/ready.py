"""Exit with 0 if the server at a local port (first argument, default 8000) is ready, else with 1."""

import sys
import urllib.request

PORT = sys.argv[1] if len(sys.argv) > 1 else "8000"
try:
    urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready", timeout=2)
except OSError:
    sys.exit(1)
