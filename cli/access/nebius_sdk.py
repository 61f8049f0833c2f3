"""The official SDK of the Nebius cloud, with the credentials that are there. It takes a second to load: import late."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from nebius.aio.cli_config import Config
from nebius.aio.token.options import OPTION_REPORT_ERROR
from nebius.aio.token.static import EnvBearer
from nebius.base.constants import DEFAULT_CONFIG_DIR, DEFAULT_CONFIG_FILE, TOKEN_ENV
from nebius.base.error import SDKError
from nebius.base.options import INSECURE
from nebius.base.resolver import Constant, Resolver
from nebius.sdk import SDK
from yaml import YAMLError

from cli.errors import USAGE, Failure

USER_AGENT = "slurmstack/0.1.0"

SERVER_ENV = "SLURMSTACK_NEBIUS_SERVER"
"""`host:port` of a server on this machine that is asked instead of the cloud, without TLS. For tests."""

CREDENTIALS_ENV = "SLURMSTACK_NEBIUS_CREDENTIALS"
"""Path of a service account's credentials file, as `nebius iam auth-public-key generate` writes it."""

CLIENT_ID = "nebius-cli"
"""The name under which a person's log-in through the browser is asked for: the vendor's command's own."""

AUTH_OPTIONS = {OPTION_REPORT_ERROR: "1"}
"""A refusal of the credentials is reported at once; by default the SDK would go on asking until the time is over."""

CLOSE_S = 2.0
"""Seconds that open connections get to end."""

HINT = (
    f"set {TOKEN_ENV}, or make a profile with `nebius profile create`, or name a service account's credentials file "
    f"in {CREDENTIALS_ENV}"
)


def open_sdk() -> SDK:
    """The SDK with credentials: a file that is named, else the token in the environment, else the command's profile.

    Nothing is asked yet. Raises Failure if there are no credentials, or what describes them is wrong.
    """
    server = os.environ.get(SERVER_ENV, "")
    if server and not server.startswith("127.0.0.1:"):  # a token must never travel in the clear
        raise Failure(f"{SERVER_ENV} is {server!r}, which is no address of this machine", code=USAGE)
    resolver: Resolver | None = Constant(server) if server else None
    options = [(INSECURE, True)] if server else []
    named = os.environ.get(CREDENTIALS_ENV)
    logging.getLogger("nebius").setLevel(logging.CRITICAL)  # it logs with tracebacks what we say in one line
    try:
        if named:
            file = Path(named)
            return SDK(user_agent_prefix=USER_AGENT, resolver=resolver, options=options, credentials_file_name=file)
        profile = Path(DEFAULT_CONFIG_DIR, DEFAULT_CONFIG_FILE).expanduser()
        if os.environ.get(TOKEN_ENV) and not profile.is_file():
            return SDK(user_agent_prefix=USER_AGENT, resolver=resolver, options=options, credentials=EnvBearer())
        return SDK(
            user_agent_prefix=USER_AGENT,
            resolver=resolver,
            options=options,
            config_reader=Config(client_id=CLIENT_ID, no_parent_id=True),
            federation_invitation_writer=sys.stderr,  # standard output belongs to the answer
        )
    except FileNotFoundError as error:
        raise Failure(f"there are no credentials for the Nebius cloud: {_error_text(error)}", hint=HINT) from None
    except (SDKError, OSError, ValueError, KeyError, TypeError, YAMLError) as error:
        raise Failure(f"the credentials for the Nebius cloud cannot be used: {_error_text(error)}", hint=HINT) from None


def close_sdk(sdk: SDK) -> None:
    """End its connections. What does not end in time ends with the process: its threads are daemons."""
    with suppress(TimeoutError):
        sdk.sync_close(timeout=CLOSE_S)


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
