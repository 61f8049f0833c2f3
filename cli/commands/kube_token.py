"""`slurmstack kube-token`: credentials for kubectl and Pulumi, asked for anew each time, so that no file holds any."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

from cli.errors import Failure

API_VERSION = "client.authentication.k8s.io/v1"

EXEC_INFO_ENV = "KUBERNETES_EXEC_INFO"
"""Where Kubernetes' clients say, as JSON, in which version of the API they want the answer."""

TIMEOUT_S = 120.0
"""Seconds for a token: enough for a log-in through a browser."""


def kube_token() -> None:
    """Print a token for the Kubernetes cluster: an exec plugin of a kubeconfig runs it. Needs no stack file.

    Credentials: $SLURMSTACK_NEBIUS_CREDENTIALS (file of a Nebius service account), else $NEBIUS_IAM_TOKEN, else the
    profile of the `nebius` command ($NEBIUS_PROFILE, or the active one).

    Standard output has the token and nothing else. Nothing is kept on disk but what the SDK itself keeps after a log-in
    through a browser.
    """
    from nebius.base.error import SDKError  # noqa: PLC0415  the SDK takes a second to load

    from cli.access.nebius_sdk import AUTH_OPTIONS, HINT, close_sdk, open_sdk  # noqa: PLC0415

    sdk = open_sdk()
    try:
        token = sdk.get_token_sync(timeout=TIMEOUT_S, options=AUTH_OPTIONS)
    except TimeoutError:
        raise Failure(f"the Nebius cloud gave no token within {TIMEOUT_S:g} s", hint="try again") from None
    except (SDKError, OSError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Failure(f"the Nebius cloud gave no token: {reason}", hint=HINT) from None
    finally:
        close_sdk(sdk)
    if token.is_empty():
        raise Failure("the Nebius cloud gave an empty token", hint=HINT)
    sys.stdout.write(json.dumps(exec_credential(token.token, token.expiration)) + "\n")


def exec_credential(token: str, expires: datetime | None) -> dict[str, Any]:
    """The answer that Kubernetes' clients expect. Without an expiry they keep the token until it is refused."""
    status = {"token": token}
    if expires is not None:
        status["expirationTimestamp"] = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # The version that the client asks for: it takes no other.
    asked = json.loads(os.environ.get(EXEC_INFO_ENV, "{}"))
    return {"apiVersion": asked.get("apiVersion", API_VERSION), "kind": "ExecCredential", "status": status}
