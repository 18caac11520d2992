#!/usr/bin/env bash
# Runs the whole method at toy size on a CPU: bash launch/quickstart.sh [DIR] [FLAG...]
# DIR is the run folder, runs/quickstart in the repository by default; flags after it go
# to experiments.main. The same command again carries on where the last one stopped.
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
EXTRAS=""
. "$HERE/setup_venv.sh"

WORKDIR="$ROOT/runs/quickstart"
if [ $# -gt 0 ] && [[ "$1" != -* ]]; then
  WORKDIR="$(realpath -m -- "$1")"
  shift
fi
cd "$ROOT"
exec "$VENV/bin/python" -m experiments.main \
  --config=configs/quickstart.py --workdir="$WORKDIR" "$@"
