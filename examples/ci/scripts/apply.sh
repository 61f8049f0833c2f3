#!/usr/bin/env bash
# Usage: apply.sh STACK_FILE
# Looks once more, since the cluster may have changed after the pull request was looked at, and applies what is not
# refused. Without a change it finishes an apply that was cut short.
# Exit status: 0 when everything has taken effect; 3 if the change is refused, and nothing was touched; else it failed.
set -euo pipefail
stack_file=$1
slurmstack=${SLURMSTACK:-.venv/bin/slurmstack} engine=${SLURMSTACK_ENGINE:-auto}

"$slurmstack" preview --config "$stack_file" --engine "$engine" --markdown
"$slurmstack" up --config "$stack_file" --engine "$engine" --yes
