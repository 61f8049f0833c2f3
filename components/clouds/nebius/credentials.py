"""Who asks the cloud: the provider for its resources, with the credentials that are there."""

from __future__ import annotations

import os

import pulumi_nebius as nebius

TOKEN_ENV = "NEBIUS_IAM_TOKEN"  # noqa: S105  name of a variable
"""A token in the environment, which the provider reads by itself."""

CREDENTIALS_ENV = "SLURMSTACK_NEBIUS_CREDENTIALS"
"""Path of a service account's credentials file; the same variable as for `slurmstack doctor cloud`."""


def create_provider(project: str) -> nebius.Provider:
    """The provider, with a service account's file, else a token, else the profile of the vendor's command.

    The first two are named by variables, so neither their content nor a path gets into the state. Its own patience of
    one minute made deletions fail; the vendor's recipe gives it ten.
    """
    file = bool(os.environ.get(CREDENTIALS_ENV))
    token = bool(os.environ.get(TOKEN_ENV))
    return nebius.Provider(
        "nebius",
        parent_id=project,
        service_account=nebius.ProviderServiceAccountArgs(credentials_file_env=CREDENTIALS_ENV) if file else None,
        profile=None if file or token else nebius.ProviderProfileArgs(),
        timeout="10m",
        per_retry_timeout="1m",
        retries=10,
    )
