#!/usr/bin/env bash
# Makes the virtual environment with the locked dependencies and the slurmstack command. Usage: venv.sh PYTHON DIRECTORY
set -euo pipefail
python=$1 venv=$2

"$python" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}; name another one: make PYTHON=python3.12")
try:
    import ensurepip, venv
except ImportError:
    sys.exit("error: this Python cannot make virtual environments; install the package python3-venv")
PY

exec 9< .
flock 9 # of two at once the second waits, and then finds what the first has made
if [ "$venv/.ready" -nt requirements.txt ] && [ "$venv/.ready" -nt pyproject.toml ]; then exit; fi
echo "Making $venv with the locked dependencies (about half a minute)"
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
# setuptools warns at length of every editable installation: shown only when it fails.
log=$("$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . 2>&1) ||
    { echo "$log" >&2; exit 1; }
