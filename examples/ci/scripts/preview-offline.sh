#!/usr/bin/env bash
# Usage: preview-offline.sh STACK_FILE COMMIT COMMENT
# The same compared with the stack file of a commit: asks no cluster and no cloud, and needs no credentials.
set -euo pipefail
stack_file=$1 commit=$2 comment=$3
slurmstack=${SLURMSTACK:-.venv/bin/slurmstack}

git cat-file -e "$commit^{commit}" # says it if the clone is too shallow
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
if ! git show "$commit:./$stack_file" >"$before/${stack_file##*/}" 2>/dev/null; then
  "$slurmstack" validate --config "$stack_file"
  echo "A new stack: there is no earlier file to compare it with." | tee "$comment"
  exit
fi
status=0
"$slurmstack" validate --config "$stack_file" --against "$before/${stack_file##*/}" --markdown >"$comment" || status=$?
cat "$comment"
exit "$status"
