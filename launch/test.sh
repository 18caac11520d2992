#!/usr/bin/env bash
# Lint, types and tests: bash launch/test.sh [--nightly] [pytest arguments]
# Without --nightly the tests marked nightly are left out, and LLVM's passes are
# off: most of the time is compilation, which then takes half as long. --nightly compiles
# as users do.
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
EXTRAS="[dev]"
. "$HERE/setup_venv.sh"

MARKS=(-m "not nightly and not parity")
if [ "${1:-}" = "--nightly" ]; then
  MARKS=(-m "not parity")
  shift
else
  export XLA_FLAGS="${XLA_FLAGS:---xla_backend_optimization_level=0}"
fi
cd "$ROOT"
"$VENV/bin/ruff" check .
"$VENV/bin/ruff" format --check .
"$VENV/bin/mypy"
exec "$VENV/bin/python" -m pytest -n "${WORKERS:-2}" -q "${MARKS[@]}" "$@"
