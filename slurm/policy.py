"""The policy document: accounts, QOS and users as the program `policy` in the cluster reads them.

A JSON object. Limits that are not set are left out, so that the document of some thousand users fits into a ConfigMap:

- `version`: of this format.
- `prune`: whether what was made by hand goes.
- `accounts`: by name, parents before their children. `parent`, `description`, `organization` and what an association
  has.
- `qos`: by name; the fields of `config.sections.accounting.Qos`.
- `users`: by name. `default_account`, `admin_level` and `associations`: account -> fields of
  `config.sections.accounting.Association`.

Limits of wall time are in minutes, as Slurm keeps them; `preempt_exempt_time` and `grace_time` in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from config.base import seconds
from config.cluster import ClusterConfig
from config.sections.accounting import Account, Association, Qos
from config.sections.users import User
from slurm.conf import effective_settings, enforcement
from slurm.health import TESTS_ACCOUNT
from slurm.names import ACCOUNTING_HOST, CONTROLLER_HOST, SLURMCTLD_PORT, SLURMDBD_PORT

VERSION = 1
"""Of the document's format, which `images/accounting/document.py` reads."""

DEFAULT_ACCOUNT = "default"
"""The account of all users where the stack file declares none, so that records have one."""

ROOT = "root"

SLURM_USER = "slurm"
"""Who submits tests of nodes: root may not run jobs."""

COMPONENT = "policy"
"""Name of the job's container, and the beginning of the job's own."""

POLICY_FILE = "policy.json"
"""The document in its ConfigMap."""


def policy_document(config: ClusterConfig) -> str:
    """The document of a stack. The same stack file always gives the same bytes."""
    return json.dumps(policy(config), indent=1)


def environment(config: ClusterConfig) -> dict[str, str]:
    """How the program reaches Slurm. None of it is secret."""
    return {
        "CLUSTER_NAME": config.slurm.cluster_name,
        "CONTROLLER": f"{CONTROLLER_HOST}:{SLURMCTLD_PORT}",
        "ACCOUNTING": f"{ACCOUNTING_HOST}:{SLURMDBD_PORT}",
        "AUTH_TYPE": effective_settings(config)["AuthType"],
    }


def policy(config: ClusterConfig) -> dict[str, Any]:
    """The document as plain values."""
    declared = config.accounts or {DEFAULT_ACCOUNT: Account(description="everybody")}
    users = {name: _user(config.users[name], everybody=not config.accounts) for name in sorted(config.users)}
    users = {name: entry for name, entry in users.items() if entry["associations"]}
    if config.health.enabled and config.health.tests.enabled:
        # `slurm`, who submits them, may be nobody without an account.
        declared = {TESTS_ACCOUNT: Account(description="tests of nodes")} | declared
        own = {"default_account": TESTS_ACCOUNT, "admin_level": "none", "associations": {TESTS_ACCOUNT: {}}}
        users[SLURM_USER] = own
    in_order = sorted(declared, key=lambda name: path(name, declared))
    return {
        "version": VERSION,
        "prune": config.accounting.prune,
        "accounts": {name: _account(name, declared, config) for name in in_order},
        "qos": {name: _qos(name, config.qos[name]) for name in sorted(config.qos)},
        "users": users,
    }


def path(name: str, accounts: Mapping[str, Account]) -> tuple[str, ...]:
    """The accounts above one, from the top, and itself. A cycle, which slurmdbd refuses, ends where it closes."""
    found = [name]
    while (parent := accounts[found[0]].parent) is not None and parent in accounts and parent not in found:
        found.insert(0, parent)
    return tuple(found)


def _account(name: str, accounts: Mapping[str, Account], config: ClusterConfig) -> dict[str, Any]:
    """Where limits hold, those at the top have one of submitted jobs in any case, which all below inherit."""
    account = accounts[name]
    limited = account.parent is None and {"limits", "safe"} & set(enforcement(config))
    top = {"max_submit_jobs": config.accounting.max_submit_jobs} if limited else {}
    return {
        **top,
        "parent": account.parent or ROOT,
        "description": account.description or name,
        "organization": account.organization or path(name, accounts)[0],
        **_association(account),
    }


def _association(association: Association) -> dict[str, Any]:
    values = association.model_dump(mode="json", include=set(Association.model_fields))
    return _set({**values, "grp_wall": _minutes(association.grp_wall), "max_wall": _minutes(association.max_wall)})


def _set(values: dict[str, Any]) -> dict[str, Any]:
    """Without what says that there is no limit. Types of GPUs are as slurmdbd has them: in small letters."""
    lowered = {
        key: {name.lower() if name.startswith("gres/") else name: count for name, count in value.items()}
        for key, value in values.items()
        if isinstance(value, dict)
    }
    return {key: value for key, value in {**values, **lowered}.items() if value not in (None, {}, [])}


def _qos(name: str, qos: Qos) -> dict[str, Any]:
    values = {
        **qos.model_dump(mode="json"),
        "description": qos.description or name,
        "grp_wall": _minutes(qos.grp_wall),
        "max_wall": _minutes(qos.max_wall),
        "preempt_exempt_time": None if qos.preempt_exempt_time is None else seconds(qos.preempt_exempt_time),
        "usage_factor": round(qos.usage_factor, 6),
    }
    return _set(values)


def _user(user: User, *, everybody: bool) -> dict[str, Any]:
    accounts = {DEFAULT_ACCOUNT: Association()} if everybody else user.accounts
    return {
        "default_account": (None if everybody else user.default_account) or next(iter(accounts), None),
        "admin_level": user.admin_level,
        "associations": {name: _association(values) for name, values in accounts.items()},
    }


def _minutes(limit: str | None) -> int | None:
    """Whole minutes, rounded up as Slurm does; None for no limit."""
    span = None if limit is None else seconds(limit)
    return None if span is None else -(-span // 60)
