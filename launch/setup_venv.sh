# Sourced, not run: makes $VENV if absent and installs the package with its extras.
#
#   EXTRAS="" or "[dev]"     which extras to install
#   PYTHON=python3.12        the interpreter to make it with; default python3.11 or python3
#   VENV=DIR                 where it lies; default .venv in the repository
#
# pip is skipped while setup.py, the constraints and the extras are what they were.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

_find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3 python; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
    # An interpreter that was asked for by name is never replaced by another.
    [ -n "${PYTHON:-}" ] && break
  done
  echo "error: no Python 3.11 or newer found${PYTHON:+ at $PYTHON}; set PYTHON" >&2
  return 1
}

_setup_venv() {
  local python minor suffix=""
  python="$(_find_python)" || return 1
  minor="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  # Each version of Python has a folder of its own, so that PYTHON= switches at once.
  [ "$minor" = 3.11 ] || suffix="-$minor"
  VENV="${VENV:-$ROOT/.venv$suffix}"
  if [ ! -x "$VENV/bin/pip" ]; then # venv installs pip last, so it was cut short.
    echo "making $VENV with $python" >&2
    "$python" -m venv "$VENV" || return 1
  fi
  local stamp wanted have
  stamp="$VENV/aes_hdc$EXTRAS.stamp"
  wanted="$(
    cd "$ROOT" && "$VENV/bin/python" - "$ROOT$EXTRAS" <<'PY'
import hashlib, pathlib, sys

digest = hashlib.sha256(sys.argv[1].encode())
for name in ("setup.py", "launch/constraints.txt"):
    digest.update(pathlib.Path(name).read_bytes())
print(digest.hexdigest())
PY
  )" || return 1
  have="$(cat "$stamp" 2>/dev/null || true)"
  if [ "$have" != "$wanted" ]; then
    echo "installing aes_hdc$EXTRAS into $VENV" >&2
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
      -c "$ROOT/launch/constraints.txt" -e "$ROOT$EXTRAS" || return 1
    echo "$wanted" >"$stamp"
  fi
}

_setup_venv || exit 1
# The CPU unless asked otherwise; compiled programs are kept from run to run.
export JAX_PLATFORMS="${JAX_PLATFORMS:-cpu}"
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$VENV/jax_cache}"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="${JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS:-0.5}"
