"""Check the models of the server at a local port (first argument, default 8000).

Exit status 0: all are ready. 1: some are loading, or the server does not answer yet. 2: a permanent failure, printed.
"""

import json
import sys
import urllib.error
import urllib.request

PORT = sys.argv[1] if len(sys.argv) > 1 else "8000"
NOT_WANTED = "not chosen by the version policy"
HOST = f"http://127.0.0.1:{PORT}/v2"
ready = True
try:
    try:
        urllib.request.urlopen(f"{HOST}/health/ready", timeout=2).close()
    except urllib.error.HTTPError:
        ready = False
    # Requested after the health check, so that the index of a ready server is complete.
    with urllib.request.urlopen(urllib.request.Request(f"{HOST}/repository/index", b"{}"), timeout=2) as answer:
        found = json.load(answer)
except urllib.error.HTTPError as e:
    print(f"the server does not list its models: status {e.code}", file=sys.stderr)
    sys.exit(2)
except OSError:
    sys.exit(1)
failed = [m for m in found if m["state"] == "UNAVAILABLE" and m.get("reason") != NOT_WANTED]
for model in failed:
    print(f"model '{model['name']}' cannot be served: {model.get('reason') or 'no reason given'}", file=sys.stderr)
if ready and not found:
    print("there are no models", file=sys.stderr)
sys.exit(2 if failed or (ready and not found) else 0 if ready else 1)
