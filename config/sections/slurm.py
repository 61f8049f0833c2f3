"""`slurmstack:slurm`, and which job runs where: `partitions`, `topology`, `preemption`, rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from config.base import Matching, Section, TimeLimit, once
from config.names import DirectoryGroup, LabelKey

_LINES_OF_OTHER_SECTIONS = {
    "nodename": "worker_nodes",
    "nodeset": "worker_nodes",
    "downnodes": "worker_nodes",
    "partitionname": "partitions",
    "include": "settings, key by key",
    "clustername": "slurm.cluster_name",
}

_KEYS_OF_THE_PODS = frozenset(
    {
        "slurmctldhost", "slurmctldport", "slurmdport", "slurmuser", "slurmduser", "statesavelocation",
        "slurmdspooldir", "slurmctldpidfile", "slurmdpidfile", "authtype", "credtype",
    }
)  # fmt: skip
"""Where the daemons are and keep their data, and how they know each other: pods, Services, volumes and keys are made
for our values, and with others the cluster would lose its queue or be cut off."""

_NOT_TRIED = {
    **dict.fromkeys(
        ("slurmctldlogfile", "slurmdlogfile", "slurmschedlogfile"),
        "the daemons log to their pods' standard output (`slurmstack logs`); leave it out",
    ),
    **dict.fromkeys(
        ("resumeprogram", "resumefailprogram", "suspendprogram"),
        "use worker_nodes.<pool>.size with min and max, whose nodes come and go with the jobs",
    ),
    **dict.fromkeys(
        ("slurmctldprimaryonprog", "slurmctldprimaryoffprog"),
        "the controller's pod has no program for it; use an alert or a probe of Kubernetes",
    ),
    **dict.fromkeys(
        ("jobcompuser", "jobcomppass", "jobcomphost", "jobcompport", "jobcomppassscript"),
        "records of jobs in a database are those of accounting (sacct); leave it out",
    ),
}
"""What no trial start of slurmctld can see (images/controller/check.py), and what to use instead."""

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr


def _setting_value(value: object) -> object:
    """Looked at before its type: else there is a problem for each of the types."""
    parts = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(part, bool | int | str) or (isinstance(part, float) and isfinite(part)) for part in parts):
        raise ValueError("is no value of slurm.conf: write text, a number, true, false or a list of these")
    return value


SettingValue = Annotated[Scalar | tuple[Scalar, ...], BeforeValidator(_setting_value)]
"""A value of slurm.conf. true and false become YES and NO, a list is joined by commas."""


_PLAIN = r'"#\x00-\x1f\x7f-\x9f\u2028\u2029'
_VALUE = re.compile(rf'"[^{_PLAIN}]*"|[^\s{_PLAIN}]*[^\s\\{_PLAIN}]')


def _problem_of(value: SettingValue) -> str | None:
    """What is wrong with a value, before the words "in the value of KEY" and after them.

    Slurm ends a value at a blank, unless all of it is in double quotes (`keyvalue_pattern` of its
    src/common/parse_config.c), and takes what follows for another key.
    """
    text = _as_text(value)
    if not text:
        return "has no value for {}, which Slurm can't read: leave the key out"
    if not _VALUE.fullmatch(text):
        return (
            "has a blank, '#', a double quote, a line break or a backslash at its end in the value of {}: take it "
            "away, or put one pair of double quotes around all of the value, as in '\"CPU=1.0, Mem=0.25G\"'"
        )
    return None


def _plugins_of(written: Mapping[str, SettingValue]) -> Iterator[str]:
    """What is wrong with plugins."""
    records, place = str(written.get("jobcomptype")).lower(), str(written.get("jobcomploc"))
    if "mysql" in records or ("filetxt" in records and not place.strip('"').startswith("/var/spool/slurmctld/")):
        file = "use jobcomp/filetxt with a JobCompLoc in /var/spool/slurmctld, which alone slurmctld may write"
        yield f"has JobCompType={records}: sacct has the records of jobs: leave it out, or {file}"
    if "cons_tres" not in (select := str(written.get("selecttype", "cons_tres")).lower()):
        whole = "for whole nodes set OverSubscribe: EXCLUSIVE in partitions.<name>.settings"
        yield f"has SelectType={select}: only select/cons_tres, our default, has dynamic nodes; leave it out; {whole}"


def _settings(settings: dict[str, SettingValue]) -> dict[str, SettingValue]:
    seen: dict[str, str] = {}
    wrong = [*_plugins_of(folded(settings))]
    for key, value in settings.items():
        section = _LINES_OF_OTHER_SECTIONS.get(key.lower())
        if not re.fullmatch("[A-Za-z][A-Za-z0-9]*", key):
            wrong.append(f"has the key {key!r}, which cannot be a key of slurm.conf: letters and digits only")
        elif key.lower() in _KEYS_OF_THE_PODS:
            wrong.append(f"has the key {key!r}, which is bound to how the pods are made and cannot be changed")
        elif key.lower() in _NOT_TRIED:
            wrong.append(f"has the key {key!r}: {_NOT_TRIED[key.lower()]}")
        elif section is not None:
            wrong.append(f"has the key {key!r}: use {section} for that")
        elif key.lower() in seen:
            wrong.append(f"has {seen[key.lower()]!r} and {key!r}, which Slurm takes for the same key")
        seen[key.lower()] = key
        if (problem := _problem_of(value)) is not None:
            wrong.append(problem.format(repr(key)))
    if wrong:
        raise ValueError("; ".join(wrong))
    return {key: _plain(value) for key, value in settings.items()}


def _plain(value: SettingValue) -> SettingValue:
    """A list as text, and without quotes that Slurm needs no more than we do: what is asked of it is asked once."""
    if isinstance(value, tuple):
        return _as_text(value)
    if isinstance(value, str) and re.fullmatch(r'"[^\s"]*[^\s"\\]"', value):
        return value[1:-1]
    return value


Settings = Annotated[dict[str, SettingValue], AfterValidator(_settings)]
"""Keys of slurm.conf and their values, as slurm.conf(5) has them."""


def folded(settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """The settings by their keys in small letters: Slurm takes no notice of case."""
    return {key.lower(): value for key, value in settings.items()}


def merge(defaults: Mapping[str, str], settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """`defaults` with `settings` laid over them; to Slurm `defmempercpu` is the same key as `DefMemPerCPU`."""
    merged = dict(defaults)
    ours = {key.lower(): key for key in defaults}
    for key, value in settings.items():
        merged[ours.get(key.lower(), key)] = _as_text(value)
    return merged


def _as_text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, tuple):
        return ",".join(_as_text(part) for part in value)
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
    settings: Settings = Field(default_factory=dict)
    """Any key of slurm.conf; it wins over our default. A wrong one is rejected by Slurm itself when it is applied,
    and the old configuration goes on."""

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
    settings: Settings = Field(default_factory=dict)
    """Further options of the `PartitionName` line in slurm.conf, for example `PriorityTier: 10`."""

    def _problem(self) -> str | None:
        for what in ("accounts", "qos"):
            if getattr(self, f"allow_{what}") and getattr(self, f"deny_{what}"):
                return f"has deny_{what} beside allow_{what}: Slurm looks at the allowed ones only; remove one of them"
        for key in self.settings:
            if (field := _OF_THE_DATABASE.get(key.lower())) is not None:
                return f"has the key {key!r} in its settings: use {field}, whose names are looked at before an apply"
        return None


_OF_THE_DATABASE = {
    **dict.fromkeys(("allowqos", "denyqos", "qos"), "allow_qos, deny_qos or qos"),
    **dict.fromkeys(("allowaccounts", "denyaccounts"), "allow_accounts or deny_accounts"),
}
"""Options of a partition that name what the database has: no trial start sees them, and slurmctld may end on them."""


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
