"""`slurmstack:sssd`: users from LDAP, Active Directory or FreeIPA."""

from __future__ import annotations

from config.base import Memory, Section
from config.names import SecretName


class Sssd(Section):
    """SSSD in all pods that have to know users, with the same configuration."""

    secret: SecretName
    """Secret in the cluster's namespace with the key `sssd.conf`, and files that it names below /etc/sssd/secrets (each
    further key is one). It is read at the start of a pod."""

    memory: Memory = "64Mi"
    """Memory that each SSSD asks Kubernetes for; at least 32Mi."""
