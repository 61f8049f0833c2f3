"""Nothing that passes the trial of a configuration ends slurmctld: each plugin that it knows, and each key left out."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

import pytest

from config import load_config
from config.errors import ConfigError
from config.sections.slurm import KNOWN
from images.controller.agent import ENDED_AT_START
from images.controller.configuration import config_hash
from images.controller.slurmctld import MOST_STARTS
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import edited, status
from tests.slurm.minimal import STACK, accounting_config
from tests.slurm.pod import HANG_SECONDS, Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

KEYS = {
    "accounting_storage": "AccountingStorageType",
    "acct_gather_energy": "AcctGatherEnergyType",
    "acct_gather_filesystem": "AcctGatherFilesystemType",
    "acct_gather_interconnect": "AcctGatherInterconnectType",
    "acct_gather_profile": "AcctGatherProfileType",
    "auth": "AuthType",
    "burst_buffer": "BurstBufferType",
    "certgen": "CertgenType",
    "certmgr": "CertmgrType",
    "cli_filter": "CliFilterPlugins",
    "cred": "CredType",
    "gres": "GresTypes",
    "hash": "HashPlugin",
    "http_parser": "HttpParserType",
    "job_container": "JobContainerType",
    "job_submit": "JobSubmitPlugins",
    "jobacct_gather": "JobAcctGatherType",
    "jobcomp": "JobCompType",
    "mcs": "MCSPlugin",
    "metrics": "MetricsType",
    "mpi": "MpiDefault",
    "namespace": "NamespaceType",
    "node_features": "NodeFeaturesPlugins",
    "preempt": "PreemptType",
    "prep": "PrEpPlugins",
    "priority": "PriorityType",
    "proctrack": "ProctrackType",
    "sched": "SchedulerType",
    "select": "SelectType",
    "site_factor": "PrioritySiteFactorPlugin",
    "switch": "SwitchType",
    "task": "TaskPlugin",
    "tls": "TLSType",
    "topology": "TopologyPlugin",
}
"""Type of a plugin, the first part of its file's name, and the key of slurm.conf(5) that chooses one."""

LINES = (
    "AccountingStorageTRES=gres/nothing",
    "AccountingStorageTRES=nothing",
    "AccountingStoreFlags=job_everything",
    "AccountingStorageExternalHost=nowhere:1",
    "EpilogSlurmctld=/nowhere",
    "JobCompLoc=/nowhere/file",
    "LogTimeFormat=thread_id",
    "LogTimeFormat=sometimes",
    "MailProg=/nowhere",
    "PriorityWeightAge=much",
    "PriorityWeightFairshare=much",
    "PriorityWeightTRES=nothing=1",
    "PrologSlurmctld=/nowhere",
    "RebootProgram=/nowhere",
    "SlurmctldDebug=loud",
    "SlurmctldDebug=quiet",
    "SlurmctldSyslogDebug=loud",
)
"""Values of keys that a trial replaces, leaves out, or could."""

KEYS_OF_SLURM = """
import ctypes, glob

class Option(ctypes.Structure):  # s_p_options_t of src/common/parse_config.h
    pointer = ctypes.c_void_p
    _fields_ = [("key", ctypes.c_char_p), ("type", ctypes.c_int), ("handler", pointer), ("more", pointer * 4)]

library = ctypes.CDLL(glob.glob("/usr/lib/*/slurm-wlm/libslurmfull.so")[0])
found = {}
for option in (Option * 1000).in_dll(library, "slurm_conf_options"):
    if option.key is None:
        break
    found[option.key.decode()] = option.handler
print(*(key for key, handler in found.items() if handler != found["CoreSpecPlugin"]))
"""
"""Prints what slurmctld's parser takes in slurm.conf, without what it only complains about, such as CoreSpecPlugin."""

OF_PARTITIONS = ("QOS=nothing", "AllowQos=nothing", "AllowAccounts=nothing", "TRESBillingWeights=nothing=1")
"""The same of a partition's options."""


class NotStarted(AccountingSandbox):
    """With database and slurmdbd, and without slurmctld and its agent."""

    def start_controller(self, *, daemons: bool = True) -> Pod:
        del daemons
        return super().start_controller(daemons=False)


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    return slurm_cluster(slurm_version, workers=1, kind=AccountingSandbox)


def plugins(cluster: SlurmSandbox) -> Iterator[str]:
    """A line of slurm.conf for each plugin of Slurm's on the controller."""
    found = cluster.run("ls /usr/lib/*/slurm-wlm/ /usr/lib/*/slurm/ 2>/dev/null").stdout.split()
    for name in sorted(file.removesuffix(".so") for file in found if file.endswith(".so")):
        kind = max((kind for kind in KEYS if name.startswith(f"{kind}_")), key=len, default="")
        if kind:
            value = name.removeprefix(f"{kind}_")
            plain = kind in {"cli_filter", "gres", "job_submit", "mpi", "prep"}
            yield f"{KEYS[kind]}={value if plain else f'{kind}/{value}'}"


def is_said(line: str) -> bool:
    """Whether a stack file can say so."""
    key, _, value = line.rpartition(" ")[2].partition("=")
    slurm: dict[str, Any] = dict(STACK["slurm"])
    partition: dict[str, Any] = {"pools": ["default"]}
    (partition if line.startswith("PartitionName") else slurm)["settings"] = {key: value}
    try:
        load_config({**STACK, "slurm": slurm, "partitions": {"main": partition}})
    except ConfigError:
        return False
    return True


def test_validate_knows_the_keys_and_plugins_that_slurm_has(cluster: AccountingSandbox, slurm_version: str) -> None:
    ours = {
        file: {name for name, version in known.values() if version in {"", slurm_version}}
        for file, known in KNOWN.items()
    }
    assert ours["slurm.conf"] == {*cluster.run(f"python3 -c {quote(KEYS_OF_SLURM)}").stdout.split()}
    programs = {"PartitionName": "/usr/lib/*/slurm-wlm/libslurmfull.so", "slurmdbd.conf": "/usr/sbin/slurmdbd"}
    for file, program in programs.items():
        pod = "slurmdbd-0" if file == "slurmdbd.conf" else "controller-0"
        words = cluster.run(f"grep --text --only-matching '[A-Za-z]*' {program}", pod=pod).stdout
        assert {name for name in ours[file] if name not in words} == set()  # "Nodes" may be the end of "MaxNodes"
    for line in plugins(cluster):
        key, _, plugin = line.partition("=")
        known = KNOWN["plugins"].get(key.lower())
        assert known is None or plugin in known[1].split(",")


def judged(cluster: SlurmSandbox, files: dict[str, str]) -> str:
    """What becomes of a configuration: `active`, a rejection, or `ended` where slurmctld did."""
    wanted = config_hash(files)
    cluster.set_config(files)
    found: dict[str, Any] = {}

    def is_decided() -> bool:
        found.update(status(cluster))
        ended = not cluster.run("pgrep -x slurmctld").stdout
        return ended or found["active"] == wanted or (found["rejected"] or {}).get("hash") == wanted

    wait_until(is_decided, cluster.logs)
    if not cluster.run("pgrep -x slurmctld").stdout:
        return "ended"
    return "active" if found["active"] == wanted else str(found["rejected"]["message"])


def start_again(cluster: SlurmSandbox) -> None:
    """As kubelet does."""
    cluster.controller.start_program("slurmctld")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)


def test_no_configuration_that_passes_its_trial_ends_slurmctld(cluster: AccountingSandbox, slurm_version: str) -> None:
    good = accounting_config(slurm_version)
    lines = [*plugins(cluster), *LINES, *(f"PartitionName=other Nodes=ALL {option}" for option in OF_PARTITIONS)]
    said = [line for line in lines if is_said(line)]
    assert len(said) > 60
    became = {}
    for line in said:
        became[line] = judged(cluster, edited(good, line))
        if became[line] == "ended":
            start_again(cluster)
    print("\n".join(f"{line}: {verdict}" for line, verdict in became.items()))  # pytest shows it where this fails
    assert [line for line, verdict in became.items() if verdict == "ended"] == []


def test_records_of_jobs_can_go_to_a_file_of_the_state_volume(cluster: AccountingSandbox, slurm_version: str) -> None:
    place = "/var/spool/slurmctld/jobs.txt"
    lines = f"JobCompType=jobcomp/filetxt\nJobCompLoc={place}\n"
    assert judged(cluster, edited(accounting_config(slurm_version), lines)) == "active"
    cluster.run("sbatch --hold --wrap true; scancel --state=PENDING")
    wait_until(lambda: "JobState=CANCELLED" in cluster.run(f"cat {place}").stdout, cluster.logs)


def test_a_first_configuration_with_which_slurmctld_ends_is_rejected_and_a_better_one_taken(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    """The trial does not see this key, and no stack file can say it."""
    good = accounting_config(slurm_version)
    bad = edited(good, "AccountingStorageTRES=nothing")
    sandbox = own_cluster(slurm_version, kind=NotStarted, config=bad, workers=0)
    sandbox.start_agent(sandbox.controller)
    for _ in range(MOST_STARTS):
        sandbox.controller.start_program("slurmctld").wait(HANG_SECONDS)
    sandbox.controller.start_program("slurmctld")
    wait_until(lambda: bool(status(sandbox)["rejected"]), sandbox.logs)
    assert status(sandbox)["rejected"]["message"].startswith(ENDED_AT_START)

    sandbox.set_config(good)

    wait_until(lambda: status(sandbox)["active"] == config_hash(good), sandbox.logs)
