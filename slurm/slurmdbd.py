"""slurmdbd.conf, but for the password, which only the pod adds."""

from __future__ import annotations

from config.accounting import ExternalDatabase, Retention
from config.cluster import ClusterConfig
from slurm.names import ACCOUNTING_HOST, DATABASE, DATABASE_PORT, SLURMDBD_PORT
from slurm.rest import TOKEN_SETTINGS
from slurm.settings import merge
from slurm.templates import environment

FILE = "slurmdbd.conf"

KEYS_DIR = "/run/slurmstack/keys"
"""Where the entry program puts the certificates (images/accounting/conf.py)."""

SYSTEM_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
"""The authorities that Debian trusts, in the image."""

_PURGE = {
    "jobs": "PurgeJobAfter",
    "steps": "PurgeStepAfter",
    "events": "PurgeEventAfter",
    "reservations": "PurgeResvAfter",
    "suspends": "PurgeSuspendAfter",
    "transactions": "PurgeTXNAfter",
    "usage": "PurgeUsageAfter",
}


def slurmdbd_settings(config: ClusterConfig) -> dict[str, str]:
    """Every key: our defaults in their order, each replaced by the user's value."""
    defaults = {
        "DbdHost": ACCOUNTING_HOST,
        "DbdPort": str(SLURMDBD_PORT),
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        **TOKEN_SETTINGS,
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        # In the foreground it logs to stderr, where `kubectl logs` finds it.
        "DebugLevel": "info",
        "DebugLevelSyslog": "quiet",
        "LogTimeFormat": "iso8601_ms",
        **_storage(config.accounting.database.external),
        **_purge(config.accounting.retention),
    }
    return merge(defaults, config.accounting.settings)


def render_slurmdbd(config: ClusterConfig) -> str:
    """The text of slurmdbd.conf without `StoragePass`."""
    values = {"settings": slurmdbd_settings(config), "version": config.slurm.version}
    return environment().get_template(f"{FILE}.j2").render(values)


def _storage(external: ExternalDatabase | None) -> dict[str, str]:
    if external is None:
        return {
            "StorageType": "accounting_storage/mysql",
            "StorageHost": DATABASE,
            "StoragePort": str(DATABASE_PORT),
            "StorageUser": "slurm",
            "StorageLoc": "slurm_acct_db",
        }
    settings = {
        "StorageType": "accounting_storage/mysql",
        "StorageHost": external.host,
        "StoragePort": str(external.port),
        "StorageUser": external.user,
        "StorageLoc": external.name,
    }
    if external.tls is not None:
        parameters = [f"SSL_CA={KEYS_DIR}/database-ca.crt" if external.tls.ca else f"SSL_CA={SYSTEM_AUTHORITIES}"]
        if external.tls.client:
            parameters += [f"SSL_CERT={KEYS_DIR}/database-client.crt", f"SSL_KEY={KEYS_DIR}/database-client.key"]
        settings["StorageParameters"] = ",".join(parameters)
    return settings


def _purge(retention: Retention) -> dict[str, str]:
    ages = {key: getattr(retention, field) for field, key in _PURGE.items()}
    return {key: age for key, age in ages.items() if age is not None}
