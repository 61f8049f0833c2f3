#!/usr/bin/env bash
# Usage: source login-nebius.sh
# Exchanges the identity that the pipeline has (OpenID Connect) for a token of the Nebius cloud, in NEBIUS_IAM_TOKEN of
# this shell. No key is kept anywhere. Needs NEBIUS_SERVICE_ACCOUNT, and on GitHub NEBIUS_AUDIENCE; on GitLab the job's
# id_tokens make NEBIUS_ID_TOKEN.
set -euo pipefail

value_of() { # a field of the JSON on standard input
  python3 -c 'import functools, json, sys; print(functools.reduce(dict.get, sys.argv[1:], json.load(sys.stdin)))' "$@"
}

login_home=$(mktemp -d)
if [ -z "${NEBIUS_ID_TOKEN:-}" ]; then
  NEBIUS_ID_TOKEN=$(curl --silent --show-error --fail --header @- \
    "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=$NEBIUS_AUDIENCE" \
    <<<"Authorization: bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN" | value_of value)
fi
mkdir "$login_home/.nebius"
(umask 077 && printf '%s' "$NEBIUS_ID_TOKEN" >"$login_home/identity")
cat >"$login_home/.nebius/config.yaml" <<CONFIG
default: pipeline
profiles:
  pipeline:
    auth-type: service account
    service-account-id: $NEBIUS_SERVICE_ACCOUNT
    federated-subject-credentials-file-path: $login_home/identity
CONFIG
login_answer=$(HOME=$login_home "${SLURMSTACK:-.venv/bin/slurmstack}" kube-token) || true # says itself what is wrong
rm -rf "$login_home"
if [ -z "$login_answer" ]; then
  exit 1
fi
NEBIUS_IAM_TOKEN=$(value_of status token <<<"$login_answer")
export NEBIUS_IAM_TOKEN
