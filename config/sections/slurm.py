"""`slurmstack:slurm`, and which job runs where: `partitions`, `topology`, `preemption`, rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from config.base import Matching, Section, TimeLimit, once
from config.errors import NULL_TEXT, nearest
from config.names import DirectoryGroup, LabelKey

_WHY = {
    "NodeName NodeSet DownNodes": "is no setting: use worker_nodes",
    "PartitionName": "is no setting: use partitions",
    "Nodes": "is no setting: use partitions.<name>.pools",
    "Include": "is no setting: write those that the file has, key by key",
    "ClusterName": "is no setting: use slurm.cluster_name",
    # With other values than ours the cluster would lose its queue or be cut off.
    "SlurmctldHost SlurmctldPort SlurmdPort SlurmUser SlurmdUser StateSaveLocation SlurmdSpoolDir SlurmctldPidFile "
    "SlurmdPidFile PidFile AuthType AuthAltTypes AuthAltParameters slurmdbd.conf/AuthInfo CredType DbdHost DbdAddr "
    "DbdBackupHost DbdPort AccountingStorageHost AccountingStorageBackupHost AccountingStoragePort "
    "AccountingStoragePass AccountingStorageUser PlugStackConfig PluginDir": (
        "is bound to how the pods are made and cannot be changed"
    ),
    "AccountingStorageType": "is no setting: use accounting.enabled",
    "StorageType StorageHost StorageBackupHost StoragePort StorageUser StorageLoc": "is up to accounting.database",
    "StoragePass StoragePassScript": (
        "a password never belongs into a stack file; put it into a Secret and name that in "
        "accounting.database.external.password, and replace the password that was written here"
    ),
    "PropagateResourceLimitsExcept": (
        "would let jobs inherit all other limits of the login node's pod: write PropagateResourceLimits with those "
        "that they shall inherit, or leave it out"
    ),
    # What no trial start of slurmctld can see (images/controller/check.py), and may end on.
    "AllowQos DenyQos QOS AllowAccounts DenyAccounts": (
        "is no setting: use allow_qos, deny_qos, qos, allow_accounts or deny_accounts of the partition"
    ),
    "SlurmctldLogFile SlurmdLogFile SlurmSchedLogFile": (
        "is not for pods: the daemons log to their standard output (`slurmstack logs`); leave it out"
    ),
    "ResumeProgram ResumeFailProgram SuspendProgram": (
        "is no setting: use worker_nodes.<pool>.size with min and max, whose nodes come and go with the jobs"
    ),
    "SlurmctldPrimaryOnProg SlurmctldPrimaryOffProg": (
        "is for a program that the controller's pod does not have; use an alert or a probe of Kubernetes"
    ),
    "JobCompUser JobCompPass JobCompHost JobCompPort JobCompPassScript": (
        "is for records of jobs in a database, which are those of accounting (sacct); leave it out"
    ),
}
_INSTEAD = {key.lower(): why for keys, why in _WHY.items() for key in keys.split()}
"""What to use instead of keys that no setting may have. All in small letters."""


KNOWN = {
    name: {key.lower(): (key, what) for key, _, what in (word.partition("=") for word in words)}
    for name, *words in map(str.split, Path(__file__).with_name("slurm_keys.txt").read_text("ascii").split("\n\n"))
}
"""What Slurm's own parsers know (tests/slurm/test_trial.py): file, or kind of line -> its keys in small letters, each
as Slurm writes it, with the one version that has it, if it is one. `plugins`: keys and the plugins that there are."""


def _check_key(file: str, key: str, info: ValidationInfo) -> str:
    """A key of a file or a kind of line. The validation's context may have the version of Slurm."""
    if instead := _INSTEAD.get(key.lower()) or _INSTEAD.get(f"{file}/{key}".lower()):
        raise ValueError(instead)
    name, version = KNOWN[file].get(key.lower(), ("", ""))
    if not name:
        guess = nearest(key, (name for name, _ in KNOWN[file].values()))
        raise ValueError(f"is no key of {file}" + (f"; did you mean {guess!r}?" if guess else ""))
    if version and version != (info.context or {}).get("version", version):
        raise ValueError(f"is a key of Slurm {version} alone; leave it out")
    return key


Scalar = bool | int | float | str
_PLAIN = r'"#\x00-\x1f\x7f-\x9f\u2028\u2029'
_VALUE = re.compile(rf'"[^{_PLAIN}]*"|[^\s{_PLAIN}]*[^\s\\{_PLAIN}]')


def _setting_value(value: object) -> object:
    """Looked at before its type: else there is a problem for each of the types.

    Slurm ends a value at a blank, unless all of it is in double quotes (`keyvalue_pattern` of its
    src/common/parse_config.c), and takes what follows for another key. A list becomes text, and quotes that Slurm needs
    no more than we do go: what is asked of a value is asked once.
    """
    parts = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(part, bool | int | str) or (isinstance(part, float) and isfinite(part)) for part in parts):
        raise ValueError("is no value of slurm.conf: write text, a number, true, false or a list of these")
    text = as_text(value)
    if text == "null":
        raise ValueError(NULL_TEXT)
    if not text:
        raise ValueError("has no value, which Slurm can't read: leave the key out")
    if not _VALUE.fullmatch(text):
        raise ValueError(
            "has a blank, '#', a double quote, a line break or a backslash at its end: take it away, or put one pair "
            "of double quotes around all of the value, as in '\"CPU=1.0, Mem=0.25G\"'"
        )
    if re.fullmatch(r'"[^\s"]*[^\s"\\]"', text):
        return text[1:-1]
    return text if isinstance(value, tuple | list) else value


SettingValue = Annotated[Scalar | tuple[Scalar, ...], BeforeValidator(_setting_value)]
"""A value of slurm.conf. true and false become YES and NO, a list is joined by commas."""


SlurmSettings = dict[Annotated[str, AfterValidator(partial(_check_key, "slurm.conf"))], SettingValue]
PartitionSettings = dict[Annotated[str, AfterValidator(partial(_check_key, "PartitionName"))], SettingValue]
DatabaseSettings = dict[Annotated[str, AfterValidator(partial(_check_key, "slurmdbd.conf"))], SettingValue]
"""Keys and their values, as slurm.conf(5) and slurmdbd.conf(5) have them."""


def folded(settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """The settings by their keys in small letters: Slurm takes no notice of case."""
    return {str(key).lower(): value for key, value in settings.items()}


def merge(defaults: Mapping[str, str], settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """`defaults` with `settings` laid over them; to Slurm `defmempercpu` is the same key as `DefMemPerCPU`."""
    merged = dict(defaults)
    ours = {key.lower(): key for key in defaults}
    for key, value in settings.items():
        merged[ours.get(key.lower(), key)] = as_text(value)
    return merged


def as_text(value: object) -> str:
    """A value as slurm.conf has it."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, tuple | list):
        return ",".join(as_text(part) for part in value)
    return str(value)


def _unquoted_version(value: object) -> object:
    """YAML reads an unquoted 24.11 as a number."""
    return f"{value:.2f}" if isinstance(value, float) else value


class Slurm(Section):
    """Version and settings of Slurm."""

    version: Annotated[Literal["24.11", "26.05"], BeforeValidator(_unquoted_version)] = "24.11"
    """Release of Slurm. 24.11 comes from Debian trixie (with PMIx), 26.05 from Debian forky (without PMIx)."""
    cluster_name: str = Field(default="slurm", pattern=r"^[a-z0-9]([-a-z0-9_]{0,38}[a-z0-9])?$")
    """`ClusterName`. It must not change in the life of a cluster: job state and accounting are bound to it."""
    settings: SlurmSettings = Field(default_factory=dict)
    """Any key of slurm.conf; it wins over our default. A wrong value is rejected by Slurm itself when it is
    applied, and the old configuration goes on."""

    @property
    def has_pmix(self) -> bool:
        """Whether Slurm can start MPI programs by PMIx. Debian's build of 26.05 cannot (November 2026)."""
        return self.version == "24.11"


_PARTITION = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"


def _partition_name(name: str) -> str:
    if not re.fullmatch(_PARTITION, name) or name.upper() in {"ALL", "DEFAULT"}:
        raise ValueError(
            "is not a partition name: up to 63 letters, digits, '_', '.', '-', no '.' or '-' first; not ALL, DEFAULT"
        )
    return name


PartitionName = Annotated[str, AfterValidator(_partition_name), Field(json_schema_extra={"pattern": _PARTITION})]
"""To Slurm `gpu` and `GPU` are two partitions (24.11.5 and 26.05.5, tried)."""


class Partition(Section):
    """A queue over one or more pools."""

    pools: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(once)]
    """Names of the pools whose nodes belong to it."""
    default: bool = Field(default=False, strict=True)
    """Whether jobs without `--partition` go here. A single partition is always the default."""
    max_time: TimeLimit = "UNLIMITED"
    """Longest time limit that a job may ask for."""
    default_time: TimeLimit | None = None
    """Time limit of jobs that ask for none. Default: `max_time`."""
    allow_accounts: tuple[str, ...] = ()
    """Accounts whose jobs may run here, with all accounts below them. Default: all."""
    deny_accounts: tuple[str, ...] = ()
    """Accounts whose jobs may not run here, with all accounts below them. Not together with `allow_accounts`."""
    allow_groups: tuple[DirectoryGroup, ...] = ()
    """Groups whose members may run jobs here: names in `slurmstack:groups`, or a user's own. Default: all."""
    allow_qos: tuple[str, ...] = ()
    """QOS that jobs here may have. Default: all."""
    deny_qos: tuple[str, ...] = ()
    """QOS that jobs here may not have. Not together with `allow_qos`."""
    qos: str | None = None
    """QOS whose limits hold for all jobs of the partition."""
    priority_tier: int | None = Field(default=None, ge=0, le=65533, strict=True)
    """Jobs of a partition with a higher tier are looked at first, and with `preemption.type: partition` preempt."""
    preempt_mode: Literal["off", "requeue", "cancel", "suspend"] | None = None
    """What happens to jobs that give way here, with `preemption.type: partition`. Default: `preemption.mode`."""
    settings: PartitionSettings = Field(default_factory=dict)
    """Further options of the `PartitionName` line in slurm.conf, for example `PriorityTier: 10`."""

    def _problem(self) -> str | None:
        for what in ("accounts", "qos"):
            if getattr(self, f"allow_{what}") and getattr(self, f"deny_{what}"):
                return f"has deny_{what} beside allow_{what}: Slurm looks at the allowed ones only; remove one of them"
        return None


class Topology(Section):
    """Where Slurm learns how the network connects the nodes, so that it places a job's nodes close together."""

    plugin: Literal["none", "tree"] | None = None
    """`tree`: a tree of switches from labels of the Kubernetes nodes. `none`: all nodes are alike. Default: `tree`
    where a pool has a `gpu_cluster`, else `none`."""
    labels: Annotated[tuple[LabelKey, ...], AfterValidator(once)] = Field(
        default=("topology.nebius.com/tier-0", "topology.nebius.com/tier-1", "topology.nebius.com/tier-2"),
        min_length=1,
        max_length=8,
    )
    """Labels of the Kubernetes nodes that name their switches, from the core to the nodes."""


LicenseName = Annotated[
    str,
    Matching(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$", "is not a name: letters, digits, '_', '.' and '-', at most 63"),
]


class Preemption(Section):
    """Which jobs give way to others."""

    type: Literal["none", "qos", "partition"] = "none"
    """`qos`: as `qos.<name>.preempt` says. `partition`: those of a partition with a lower `priority_tier`."""
    mode: Literal["requeue", "cancel", "suspend"] = "requeue"
    """What happens to a job that gives way, unless its QOS or partition says otherwise (`PreemptMode`)."""


class JobSubmit(Section):
    """Rules for every job at its submission, for wishes that are common."""

    default_time: TimeLimit | None = None
    """Time limit of jobs that name none, in all partitions without `default_time`."""
    require_account: bool = Field(default=False, strict=True)
    """Whether jobs that do not name an account (`--account`) are refused, even if the user has a default one."""
    gpus_only_in_gpu_partitions: bool = Field(default=False, strict=True)
    """Whether jobs that ask for GPUs are refused in partitions without GPUs, and jobs that ask for none in partitions
    where all nodes have some."""

    @property
    def needs_script(self) -> bool:
        """Whether slurmctld must run a script for each job. The default time is an option of partitions."""
        return self.require_account or self.gpus_only_in_gpu_partitions
