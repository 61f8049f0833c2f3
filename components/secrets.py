"""Keys that are made once and kept: of munge, of tokens, of the database and of SSH hosts."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from components.kit.context import Scope
from slurm.certificates import SEED_BYTES, ed25519_private_key_pem, ed25519_public_key

MUNGE_KEY_BYTES = 128
"""munge(7) accepts 32 to 1024 bytes; 128 is what its own `mungekey` makes."""

DATABASE_PASSWORD_BYTES = 24
"""32 characters of Base64, none of which slurmdbd.conf has a meaning for."""

JWT_KEY_BYTES = 32
"""HS256 wants 256 bits at least (RFC 7518, section 3.2); slurm.conf's documentation makes 32 bytes."""

WORKER_HOST_KEY = "worker-host-key"
"""Name of the Secret with the workers' SSH host key, and of the ConfigMap with its public half."""

PUBLIC_KEY_FILE = "ssh_host_ed25519_key.pub"
LOGIN_PUBLIC_KEY_FILE = "login_host_ed25519_key.pub"


class Secrets(pulumi.ComponentResource):
    """The cluster's keys, generated once and handed to the pods as Kubernetes Secrets.

    docs/rotate-keys.md says how to rotate them; with another munge key all pods must be restarted together.
    """

    munge: k8s.core.v1.Secret
    jwt: k8s.core.v1.Secret
    """Whoever has this key can be any user of Slurm; slurmctld, slurmdbd and backups mount it, nobody else."""
    ssh_host_keys: k8s.core.v1.Secret
    worker_host_key: k8s.core.v1.Secret
    """Of the sshd of all workers. Not the login nodes' one: who has taken over a worker could pass for these. It is
    there without one, too: who turns that off and on again keeps the key."""
    worker_public_key: k8s.core.v1.ConfigMap
    """Its public half, for all who may look: as a file in pods, which stay when the key is rotated. The login nodes'
    is beside it."""
    database: k8s.core.v1.Secret
    """The password of slurmdbd in the cluster's own database. It is there with an external one, too: a stack
    that comes back to its own database needs no new password."""
    rest_seed: pulumi.Output[str]
    """For the certificate of the REST API. It is there without one, too: an API that is turned off and on again keeps
    the authority that its users know."""
    host_public_key: pulumi.Output[str]

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slurmstack:index:Secrets", name, None, opts)
        self._random = pulumi.ResourceOptions(parent=self, protect=scope.config.protects_data)
        self._child = pulumi.ResourceOptions(parent=self)
        munge_key = random.RandomBytes(f"{name}-munge", length=MUNGE_KEY_BYTES, opts=self._random)
        jwt_key = random.RandomBytes(f"{name}-jwt", length=JWT_KEY_BYTES, opts=self._random)
        rest_seed = random.RandomBytes(f"{name}-rest-seed", length=SEED_BYTES, opts=self._random)
        host_seed = random.RandomBytes(f"{name}-host-seed", length=SEED_BYTES, opts=self._random)
        self.munge = self._create_secret(name, "munge-key", scope, data={"munge.key": munge_key.base64})
        self.jwt = self._create_secret(name, "jwt-key", scope, data={"jwt_hs256.key": jwt_key.base64})
        password = random.RandomBytes(f"{name}-database", length=DATABASE_PASSWORD_BYTES, opts=self._random)
        self.database = self._create_secret(name, "database-password", scope, string_data={"password": password.base64})
        host_key = {"ssh_host_ed25519_key": host_seed.base64.apply(ed25519_private_key_pem)}
        self.ssh_host_keys = self._create_secret(name, "ssh-host-keys", scope, string_data=host_key)
        self.host_public_key = pulumi.Output.unsecret(host_seed.base64.apply(ed25519_public_key))
        worker_seed = random.RandomBytes(f"{name}-worker-host-seed", length=SEED_BYTES, opts=self._random)
        worker_key = {"ssh_host_ed25519_key": worker_seed.base64.apply(ed25519_private_key_pem)}
        self.worker_host_key = self._create_secret(name, WORKER_HOST_KEY, scope, string_data=worker_key)
        self.worker_public_key = k8s.core.v1.ConfigMap(
            f"{name}-{WORKER_HOST_KEY}-public",
            metadata=scope.metadata(WORKER_HOST_KEY, "secrets"),
            data={
                PUBLIC_KEY_FILE: pulumi.Output.unsecret(worker_seed.base64.apply(ed25519_public_key)),
                LOGIN_PUBLIC_KEY_FILE: self.host_public_key,
            },
            opts=self._child,
        )
        self.rest_seed = rest_seed.base64
        self.register_outputs({"host_public_key": self.host_public_key})

    def _create_secret(
        self,
        name: str,
        secret: str,
        scope: Scope,
        *,
        data: Mapping[str, pulumi.Input[str]] | None = None,
        string_data: Mapping[str, pulumi.Input[str]] | None = None,
    ) -> k8s.core.v1.Secret:
        return k8s.core.v1.Secret(
            f"{name}-{secret}",
            metadata=scope.metadata(secret, "secrets"),
            type="Opaque",
            data=data,
            string_data=string_data,
            opts=self._child,
        )
