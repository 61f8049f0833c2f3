"""Accounts, users and what slurmdbd is told of them."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm import conf
from slurm.conf import settings_of, tracked_resources
from slurm.policy import policy
from tests import stacks

USERS = {"bob": {"uid": 10002}, "alice": {"uid": 10001}}


def document(**sections: Any) -> dict[str, Any]:
    return policy(load_config({**stacks.dev(), "users": USERS, **sections}))


def test_submitted_jobs_are_bound_at_the_top_of_the_tree_unless_that_says_more() -> None:
    accounts = {"ml": {}, "vision": {"parent": "ml"}, "bio": {"max_submit_jobs": 5}}

    found = document(accounts=accounts, accounting={"max_submit_jobs": 300})["accounts"]

    assert {name: entry.get("max_submit_jobs") for name, entry in found.items()} == {
        "ml": 300, "vision": None, "bio": 5,
    }  # fmt: skip
    assert document(accounts={"ml": {}})["accounts"]["ml"]["max_submit_jobs"] < 100_000, "MaxJobCount"
    assert "max_submit_jobs" not in document()["accounts"]["default"], "nothing enforces it there"


def test_a_user_s_first_account_is_the_default_unless_named() -> None:
    users = {
        "alice": {"uid": 10001, "accounts": {"ml": {"fairshare": 3}, "bio": {}}},
        "bob": {"uid": 10002, "accounts": ["ml", "bio"], "default_account": "bio", "admin_level": "operator"},
        "carol": {"uid": 10003},
    }

    found = document(accounts={"ml": {}, "bio": {}}, users=users)["users"]

    assert found["alice"]["default_account"] == "ml"
    assert found["alice"]["associations"]["ml"]["fairshare"] == 3
    assert (found["bob"]["default_account"], found["bob"]["admin_level"]) == ("bio", "operator")
    assert "carol" not in found


def test_times_are_in_the_units_that_slurm_keeps() -> None:
    qos = {
        "high": {"max_wall": "1-12", "preempt": ["low"], "preempt_exempt_time": "1:30", "grace_time": 20},
        "low": {"max_wall": "UNLIMITED"},
    }

    accounts = {"ml": {"max_wall": "0:30", "grp_wall": "90"}}
    found = document(qos=qos, accounts=accounts, preemption={"type": "qos"})

    assert found["qos"]["high"]["max_wall"] == 36 * 60
    assert found["qos"]["high"]["preempt_exempt_time"] == 90
    assert "max_wall" not in found["qos"]["low"]
    assert found["accounts"]["ml"]["max_wall"] == 1  # rounded up, as Slurm does
    assert found["accounts"]["ml"]["grp_wall"] == 90


def test_types_of_gpus_in_limits_are_as_slurmdbd_keeps_them() -> None:
    gpu, limits = {"cpus": 2, "memory": "2Gi", "gpus": {"count": 2, "type": "A100"}}, {"gres/gpu:A100": 1, "cpu": 2}
    sections = {"worker_nodes": {"default": {"size": 1, "resources": gpu}}, "qos": {"high": {"grp_tres": limits}}}
    assert document(**sections)["qos"]["high"]["grp_tres"] == {"gres/gpu:a100": 1, "cpu": 2}


def test_slurm_tracks_every_resource_that_a_limit_or_a_weight_names() -> None:
    config = load_config(
        {
            **stacks.existing(),
            "accounts": {"ml": {"grp_tres": {"cpu": 8, "gres/gpu:h100": 4}}},
            "qos": {"high": {"max_tres_per_user": {"license/matlab": 1}}},
            "users": {"alice": {"uid": 10001, "accounts": {"ml": {"grp_tres_mins": {"gres/gpu": 100}}}}},
            "licenses": {"matlab": 4},
            "slurm": {"settings": {"priorityweighttres": "CPU=1000,GRES/gpu:h200=3000"}},
        }
    )

    assert tracked_resources(config) == ["gres/gpu", "gres/gpu:h100", "gres/gpu:h200", "license/matlab"]


SYSTEM = "SSL_CA=/etc/ssl/certs/ca-certificates.crt"
EXTERNAL = {"host": "db.example", "password": {"name": "db", "key": "password"}}


def slurmdbd_conf(accounting: dict[str, Any]) -> dict[str, str]:
    """Keys and values of the file for a stack with this section."""
    return settings_of(conf.slurmdbd_conf(load_config(stacks.existing() | {"accounting": accounting})))


def slurm_conf(sections: dict[str, Any]) -> dict[str, str]:
    return conf.effective_settings(load_config(sections))


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


def test_nothing_of_accounting_is_left_where_it_is_off() -> None:
    found = slurm_conf(stacks.existing() | {"accounting": {"enabled": False}})
    assert not [key for key in found if key.startswith(("AccountingStorage", "Priority", "MaxDBDMsgs"))]
