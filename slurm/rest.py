"""The REST API: what slurm.conf says about its tokens, and the names that its certificate is for."""

from __future__ import annotations

from config.rest import Rest
from slurm.names import REST

JWT_KEY = "/run/slurmstack/keys/jwt_hs256.key"
"""Where the programs of slurmctld and slurmdbd put the key (images/common/jwt_key.py)."""

TOKEN_SETTINGS = {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={JWT_KEY}"}
"""For slurm.conf and slurmdbd.conf. They are there with and without a REST API, so that turning it on restarts nothing,
and `scontrol token` works in any case."""


def token_settings(rest: Rest) -> dict[str, str]:
    """For slurm.conf: the key, and which tokens slurmctld makes for whom.

    It alone makes them, so slurmdbd.conf has no limits.
    """
    limits = [f"max_token_lifespan={rest.max_token_lifespan}"]
    if not rest.token_creation:
        limits.append("disable_token_creation")
    return {**TOKEN_SETTINGS, "AuthAltParameters": ",".join([TOKEN_SETTINGS["AuthAltParameters"], *limits])}


def certificate_names(namespace: str, cluster_domain: str, more: tuple[str, ...] = ()) -> list[str]:
    """Host names of the REST API: those inside the cluster, then those of the stack file, each once."""
    inside = [REST, f"{REST}.{namespace}", f"{REST}.{namespace}.svc", f"{REST}.{namespace}.svc.{cluster_domain}"]
    return list(dict.fromkeys([*inside, *more]))
