#!/bin/sh
# Serves the models of a folder until all of them have run, so that their programs and plans lie in the cache folder.
# usage: warm.sh FOLDER [PORT]
set -eu
port=${2:-8000}
here=$(dirname "$0")
# Without tiers a first run waits for the programs that are made for the model; general ones would serve meanwhile.
OPALITE_TIERS=0 opalite serve --repository "$1" --port "$port" &
server=$!
seconds=0
until python "$here/ready.py" "$port"; do
    if ! kill -0 "$server" 2>/dev/null || [ "$seconds" -ge 900 ]; then
        echo "warm.sh: the models of $1 do not get ready" >&2
        kill "$server" 2>/dev/null || true
        exit 1
    fi
    seconds=$((seconds + 1))
    sleep 1
done
kill -TERM "$server"
wait "$server"
