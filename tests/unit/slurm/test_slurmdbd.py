"""slurmdbd.conf, and what slurm.conf says of accounting."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm import conf
from slurm.conf import settings_of
from tests import stacks
from tests.stacks import with_change

SYSTEM = "SSL_CA=/etc/ssl/certs/ca-certificates.crt"
EXTERNAL = {"host": "db.example", "password": {"name": "db", "key": "password"}}


def slurmdbd_conf(accounting: dict[str, Any]) -> dict[str, str]:
    """Keys and values of the file for a stack with this section."""
    return settings_of(conf.slurmdbd_conf(load_config(stacks.existing() | {"accounting": accounting})))


def slurm_conf(sections: dict[str, Any]) -> dict[str, str]:
    return conf.effective_settings(load_config(sections))


def test_records_go_to_the_cluster_s_own_database_and_no_password_is_in_the_file() -> None:
    found = slurmdbd_conf({})
    assert (found["DbdHost"], found["StorageHost"], found["StorageUser"]) == ("slurmdbd-0", "database", "slurm")
    assert "StoragePass" not in found
    assert found["PurgeJobAfter"] == "24months"
    assert "PurgeUsageAfter" not in found, "summed usage is kept for ever"


def test_an_age_of_null_is_for_ever_and_a_setting_wins() -> None:
    found = slurmdbd_conf({"retention": {"jobs": None, "steps": "90days"}, "settings": {"debuglevel": "debug"}})
    assert "PurgeJobAfter" not in found
    assert found["PurgeStepAfter"] == "90days"
    assert found["DebugLevel"] == "debug"


@pytest.mark.parametrize(
    ("tls", "parameters"),
    [
        (None, None),
        ({}, SYSTEM),
        ({"ca": {"name": "ca", "key": "ca.pem"}}, "SSL_CA=/run/slurmstack/keys/database-ca.crt"),
        (
            {"client": "client"},
            f"{SYSTEM},SSL_CERT=/run/slurmstack/keys/database-client.crt,SSL_KEY=/run/slurmstack/keys/database-client.key",
        ),
    ],
)
def test_an_external_server_may_have_tls(tls: dict[str, Any] | None, parameters: str | None) -> None:
    found = slurmdbd_conf({"database": {"external": {**EXTERNAL, "port": 3307, "tls": tls}}})
    assert (found["StorageHost"], found["StoragePort"]) == ("db.example", "3307")
    assert found.get("StorageParameters") == parameters


def test_slurm_conf_names_slurmdbd_and_counts_gpus() -> None:
    found = slurm_conf(stacks.existing())
    assert found["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert found["AccountingStorageHost"] == "slurmdbd-0"
    assert found["AccountingStorageTRES"] == "gres/gpu"
    assert slurm_conf(stacks.dev())["AccountingStorageTRES"] == "gres/gpu", "a first GPU pool changes no array"


def test_nothing_of_accounting_is_left_where_it_is_off() -> None:
    found = slurm_conf(stacks.existing() | {"accounting": {"enabled": False}})
    assert not [key for key in found if key.startswith(("AccountingStorage", "Priority", "MaxDBDMsgs"))]


def test_jobs_need_an_account_once_there_are_any_unless_enforce_says_otherwise() -> None:
    assert "AccountingStorageEnforce" not in slurm_conf(stacks.existing())
    sections = stacks.existing() | {"accounts": {"physics": {}}}
    assert slurm_conf(sections)["AccountingStorageEnforce"] == "associations,limits,qos,safe"
    assert "AccountingStorageEnforce" not in slurm_conf(with_change(sections, "accounting.enforce", []))
