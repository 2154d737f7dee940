#!/bin/sh
# Serves the models of a folder until all of them have run, which fills the cache folder with their programs and plans.
# Ends with 1 if a model cannot be served, if the server ends, or after 900 seconds.
# usage: warm.sh FOLDER [PORT]
set -eu
port=${2:-8000}
here=$(dirname "$0")
# Without tiers a first run waits for the optimized programs, instead of using the generic ones.
OPALITE_SERVE_KEY='' OPALITE_TIERS=0 opalite serve --repository "$1" --port "$port" &
server=$!
end() {
    echo "warm.sh: the models of $1 do not get ready: $2" >&2
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    exit 1
}
seconds=0
while :; do
    state=0
    python "$here/loaded.py" "$port" || state=$?
    # Another server may own the port.
    kill -0 "$server" 2>/dev/null || end "$1" "the server has ended"
    case $state in
    0) break ;;
    1) ;;
    *) end "$1" "see above" ;;
    esac
    [ "$seconds" -lt 900 ] || end "$1" "900 seconds have passed"
    seconds=$((seconds + 1))
    sleep 1
done
kill -TERM "$server"
wait "$server"
