#!/usr/bin/env bash
# Make or mend .venv from the lock files: no root, no conda. `make run` and `make test` call it; running it again is quick.
#   envs/setup.sh                      what a run needs (requirements.lock)
#   envs/setup.sh tests                also what tests, lint and docs need (requirements-tests.lock)
#   PYTHON=python3.12 envs/setup.sh    another interpreter (3.11.5 or newer)
set -euo pipefail
[ $# = 0 ] || [ "$*" = tests ] || {
  echo "envs/setup.sh: $* is not known; allowed: tests" >&2
  exit 1
}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH  # pip would take this checkout's code for an installed package
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' || {
  echo "envs/setup.sh: $python is $("$python" -V 2>&1); Python 3.11.5 or newer is needed, set PYTHON" >&2
  exit 1
}
# Programs in .venv/bin begin with its path: in a checkout that was copied or moved they would be the old one's, or none.
[ -L .venv ] || grep -qsF "$(pwd -P)/.venv" .venv/bin/activate || "$python" -m venv --clear .venv
lock=.venv/requirements.lock
# The same import from two packages: the machine decides. torch's CUDA libraries come with torch where pip finds that build.
if command -v nvidia-smi >/dev/null; then
  sed 's/^faiss-cpu==/faiss-gpu==/' envs/requirements.lock >"$lock"
else
  cp envs/requirements.lock "$lock"
fi
[ $# = 0 ] || cat envs/requirements-tests.lock >>"$lock"
echo "installing $(grep -c == "$lock") pinned packages into .venv …" >&2
# By uv, which is several times as fast; else by pip. Bytecode is compiled at first use: most of what is installed is never
# imported.
install() {
  .venv/bin/python envs/install_by_uv.py "$@" && return
  echo "uv cannot; pip does it …" >&2
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile "$@"
}
install -r "$lock"
install --no-deps --no-build-isolation -e .
touch .venv/.installed
[ $# = 0 ] || touch .venv/.tests-installed
