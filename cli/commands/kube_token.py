"""`slurmstack kube-token`: credentials for kubectl and Pulumi, asked for anew each time, so that no file holds any."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cli.commands.options import option
from cli.errors import Failure

API_GROUP = "client.authentication.k8s.io"

API_VERSION = f"{API_GROUP}/v1"

EXEC_INFO_ENV = "KUBERNETES_EXEC_INFO"
"""Where Kubernetes' clients say, as JSON, in which version of the API they want the answer. They take no other."""

TIMEOUT_S = 120.0
"""Seconds for a token: enough for a log-in through a browser."""

CredentialsOption = Annotated[
    Path | None,
    option(
        metavar="FILE",
        help="Credentials file of a Nebius service account. Default: $SLURMSTACK_NEBIUS_CREDENTIALS, else "
        "$NEBIUS_IAM_TOKEN, else the profile of the `nebius` command.",
    ),
]
ProfileOption = Annotated[
    str | None,
    option(metavar="NAME", help="Profile of the `nebius` command. Default: $NEBIUS_PROFILE, else the active one."),
]


def kube_token(credentials: CredentialsOption = None, profile: ProfileOption = None) -> None:
    """Print a token for the Kubernetes cluster: an exec plugin of a kubeconfig runs it. Needs no stack file.

    Standard output has the token and nothing else. Nothing is kept on disk but what the SDK itself keeps after a log-in
    through a browser.
    """
    from nebius.base.error import SDKError  # noqa: PLC0415  the SDK takes a second to load

    from cli.access.nebius_sdk import AUTH_OPTIONS, HINT, close_sdk, open_sdk  # noqa: PLC0415

    sdk = open_sdk(credentials=credentials, profile=profile)
    try:
        token = sdk.get_token_sync(timeout=TIMEOUT_S, options=AUTH_OPTIONS)
    except TimeoutError:
        raise Failure(f"the Nebius cloud gave no token within {TIMEOUT_S:g} s", hint="try again") from None
    except (SDKError, OSError, ValueError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise Failure(f"the Nebius cloud gave no token: {said}", hint=HINT) from None
    finally:
        close_sdk(sdk)
    if token.is_empty():
        raise Failure("the Nebius cloud gave an empty token", hint=HINT)
    sys.stdout.write(json.dumps(exec_credential(token.token, token.expiration, _wanted_version())) + "\n")


def exec_credential(token: str, expires: datetime | None, api_version: str = API_VERSION) -> dict[str, Any]:
    """The answer that Kubernetes' clients expect. Without an expiry they keep the token until it is refused."""
    status = {"token": token}
    if expires is not None:
        status["expirationTimestamp"] = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"apiVersion": api_version, "kind": "ExecCredential", "status": status}


def _wanted_version() -> str:
    """The version that the client asks for, if it is one of the two with this form; else v1."""
    try:
        asked = json.loads(os.environ.get(EXEC_INFO_ENV, "{}"))
    except ValueError:
        return API_VERSION
    version = asked.get("apiVersion") if isinstance(asked, dict) else None
    return version if version in {API_VERSION, f"{API_GROUP}/v1beta1"} else API_VERSION
