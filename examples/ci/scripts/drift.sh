#!/usr/bin/env bash
# Usage: drift.sh STACK_FILE
# Says nothing where the cluster is as the stack file says. Otherwise prints what differs: what was changed by hand, or
# merged and not applied.
# Exit status: 0; 4 if something differs, 3 if putting it right is refused; else nobody knows.
set -euo pipefail
stack_file=$1

status=0
report=$("${SLURMSTACK:-.venv/bin/slurmstack}" preview --config "$stack_file" --engine "${SLURMSTACK_ENGINE:-auto}" \
  --markdown --detailed-exitcode) || status=$?
if [ "$status" -ne 0 ]; then
  printf '%s\n' "$report"
fi
exit "$status"
