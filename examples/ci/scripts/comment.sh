#!/usr/bin/env bash
# Usage: comment.sh COMMENT
# Puts the file COMMENT into the pull request: in place of the one that this pipeline wrote before, which begins with the
# same line. Needs gh, GH_TOKEN, GITHUB_REPOSITORY and PULL_REQUEST (its number).
set -euo pipefail
comment=$1
if [ ! -s "$comment" ]; then
  echo "there is no preview to comment with"
  exit
fi

marker=$(head -n 1 "$comment")
export marker
comments=repos/$GITHUB_REPOSITORY/issues
# The text of a comment is data: nothing of it gets into a command line. Comments of other people are left alone.
ids=$(gh api --paginate "$comments/$PULL_REQUEST/comments" --jq \
  '.[] | select(.user.login == "github-actions[bot]" and (.body | startswith(env.marker))) | .id')
id=${ids%%$'\n'*}
if [ -n "$id" ]; then
  gh api --silent --method PATCH "$comments/comments/$id" --field "body=@$comment"
else
  gh api --silent --method POST "$comments/$PULL_REQUEST/comments" --field "body=@$comment"
fi
