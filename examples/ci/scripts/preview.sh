#!/usr/bin/env bash
# Usage: preview.sh STACK_FILE COMMENT
# Writes what an apply would do to the cluster as it is now into the file COMMENT.
# Exit status: 0; 3 if the change is refused, and the comment says why; else there is no preview.
set -euo pipefail
stack_file=$1 comment=$2

status=0
"${SLURMSTACK:-.venv/bin/slurmstack}" preview --config "$stack_file" --engine "${SLURMSTACK_ENGINE:-auto}" --markdown \
  >"$comment" || status=$?
cat "$comment"
exit "$status"
