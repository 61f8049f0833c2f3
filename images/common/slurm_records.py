"""The one reader of Slurm's records: what `scontrol show` and `squeue` print of nodes, jobs and reservations.

As lines (`--oneliner`) where little is wanted of many records, or a comment of a reservation: JSON is several times as
long, and lacks that. As JSON (24.11: data_parser v0.0.42, 26.05: v0.0.45) where texts matter that anybody may have
written. Other parsers may give a list as one text and a number as it is: that is understood, too.

Before them the values that all commands print: times, sizes, resources (TRES), GPUs, tasks of a job array. What is no
such value is read as none. One record that somebody has written into must not take all others away.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

MEBIBYTE: Final = 1 << 20

_DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)")
_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?(?::(\d+))?")
_IN_MEBIBYTES: Final = ("mem", "bb/")

# Free text (the reason, a comment) comes after these in a line, and nothing before them has blanks in it but the
# operating system's name, which slurmd tells.
_NODE: Final = re.compile(r"^NodeName=(\S+)")
_STATE: Final = re.compile(r"\sState=(\S+)")
_REASON: Final = re.compile(r"\sReason=(\S+)")

_KEY: Final = re.compile(r"(?:^| )([A-Za-z]+)=")

_LONGEST_NUMBER: Final = 9
_MOST_NODES: Final = 65_536
"""In one range of Slurm's own lists (MAX_RANGE, hostlist.c)."""

MARK: Final = "elastic"
"""Key of the `Extra` of an elastic node: a digest of what its record was made with."""

SLURMD_PORT: Final = 6818

_NUMBERED: Final = re.compile(r"^(?P<prefix>.*?)(?P<number>0|[1-9]\d{0,8})$")


def seconds(text: str) -> float | None:
    """Of `[DAYS-][HOURS:]MINUTES:SECONDS[.FRACTION]`; None for `UNLIMITED`, `NOT_SET`, `INVALID`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def moment(text: str) -> float | None:
    """A time in seconds since 1970, which SLURM_TIME_FORMAT=%s gives. None for `N/A`, `Unknown`, and for 0: never."""
    return float(text) if text.isascii() and text.isdecimal() and int(text) else None


def count(text: str) -> int:
    """A number, or the least of a range: 3 of `3`, `3-5` and `3+`; 0 of what is none."""
    match = re.match(r"[0-9]+", text.strip())
    return int(match[0]) if match else 0


def size(text: str, bare: int = 1) -> float | None:
    """Bytes of `1843200`, `512M` or `1.50G`. `bare`: of one, where there is no unit."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    return float(match[1]) * (1024 ** _UNITS[match[2]] if match[2] else bare)


def tres(text: str) -> dict[str, str]:
    """`cpu=00:00:05,mem=1843200` by name."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(",")) if value}


def amounts(text: str) -> dict[str, float]:
    """`cpu=2,mem=1.50G,gres/gpu:h100=1` as numbers, memory in MiB; `1?`, for which Slurm has no unit: inf."""
    return {name: _amount(name, value) for name, value in tres(text).items()}


def _amount(name: str, value: str) -> float:
    in_mebibytes = name.startswith(_IN_MEBIBYTES)
    found = size(value, MEBIBYTE if in_mebibytes else 1)
    if found is None:
        return math.inf
    return found / MEBIBYTE if in_mebibytes else found


def gpus_in(resources: Mapping[str, float]) -> float:
    """GPUs of all types. Slurm counts `gres/gpu:h100` in `gres/gpu` too, where both are recorded."""
    total = resources.get("gres/gpu")
    return sum(n for name, n in resources.items() if name.startswith("gres/gpu:")) if total is None else total


def gpus(gres: str, *, whole: bool = False) -> int:
    """In what a node has (`gpu:h100:8(S:0-1),shard:16`) or a job asks for (`gres/gpu:h100:2,gpu`).

    A part of a GPU (MIG: `gpu:1g.10gb:7`) counts as one, with `whole` as none.
    """
    words = (re.sub(r"^gres[/:]", "", word) for word in re.sub(r"\(.*?\)", "", gres).split(","))
    found = 0
    for word in words:
        kind, *parts = re.split(r"[:=]", word)
        if kind == "gpu" and not (whole and parts and re.match(r"[1-7]g\.", parts[0])):
            found += int(parts[-1]) if parts and parts[-1].isdecimal() else 1
    return found


def task_ids(job: str) -> Iterator[str]:
    """What squeue shows together as `12_[4-10:3,107%8]`, each as scancel takes it: `12_4`, `12_7`, ..."""
    array, together, _ = job.partition("_[")
    if not together:
        yield job
    for tasks in _tasks(job):
        yield from (f"{array}_{task}" for task in tasks)


def task_count(job: str) -> int:
    """How many jobs that is."""
    return sum(map(len, _tasks(job))) if "_[" in job else 1


def _tasks(job: str) -> Iterator[range]:
    tasks = job.partition("_[")[2]
    for first, last, step in _RANGE.findall(tasks.partition("%")[0]):
        yield range(int(first), int(last or first) + 1, int(step or 1))


class NotUnderstoodError(Exception):
    """A command has printed something else than what it was asked for."""


class Has:
    """A property of a node: whether its record has any of these states."""

    def __init__(self, *states: str) -> None:
        self._states = frozenset(states)

    def __get__(self, node: NodeRecord, _: type[NodeRecord]) -> bool:
        return bool(node.states & self._states)


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """A node's record. From a line, there are only name, states and the first word of the reason. Memory is in MiB."""

    name: str
    states: frozenset[str]
    """`IDLE`, `DYNAMIC_NORM`, `NOT_RESPONDING` and the like."""
    reason: str = ""
    """Why it is drained or down."""
    reason_by: str = ""
    """User that set the reason."""
    reason_at: float | None = None
    """When it was set, in seconds since 1970, by slurmctld's clock."""
    comment: str = ""
    extra: str = ""
    features: frozenset[str] = frozenset()
    """Active ones, by which a pool's nodes are known."""
    partitions: tuple[str, ...] = ()
    """In which its jobs may run."""
    gres: str = ""
    """`gpu:h100:8(S:0-1),shard:16`."""
    gres_used: str = ""
    cpus: int = 0
    cpus_alloc: int = 0
    memory: int = 0
    memory_alloc: int = 0
    started_at: float = 0.0
    """When its slurmd started, in seconds since 1970: before that it may have been another machine of this name."""
    address: str = ""
    """Where slurmd listens."""
    port: int = SLURMD_PORT

    is_cloud = Has("CLOUD")
    """Whether Slurm starts and ends it, as those of elastic pools."""
    is_busy = Has("ALLOCATED", "MIXED", "COMPLETING")
    """Whether it has jobs. Suspended ones do not show."""
    is_down = Has("DOWN")
    """Whether Slurm has given it up."""
    is_off = Has("POWERED_DOWN", "POWERING_DOWN")
    """Whether it is to have no pod."""
    is_powered_down = Has("POWERED_DOWN")
    """Whether it is off, and Slurm may start it."""
    is_coming = Has("POWERING_UP")
    """Whether Slurm has started it, and waits for it to register."""
    is_silent = Has("NOT_RESPONDING")
    """Whether slurmctld thinks that it does not answer."""

    @property
    def is_up(self) -> bool:
        """Whether it has registered, and jobs can run on it."""
        return not (self.is_off or self.is_coming or self.is_down)

    @property
    def mark(self) -> str:
        """Of an elastic pool's node: a digest of what the record was made with."""
        return mark_in(self.extra)

    @property
    def pool(self) -> str:
        """Its features, which are the same for all nodes of a pool. Empty: nobody says."""
        return ",".join(sorted(self.features))

    @property
    def gpus(self) -> int:
        """Whole ones; parts of GPUs (MIG) are none that a test could take."""
        return gpus(self.gres, whole=True)

    @property
    def all_gpus(self) -> int:
        """Parts of GPUs too: a job that names no type may have one."""
        return gpus(self.gres)

    @property
    def gpus_alloc(self) -> int:
        """Those of them that jobs have."""
        return gpus(self.gres_used)

    @property
    def is_drained(self) -> bool:
        """No new job is started on it, whoever wanted that."""
        return any(state.startswith("DRAIN") for state in self.states)


def nodes_in(lines: str) -> list[NodeRecord]:
    """Records in the output of `scontrol show nodes --oneliner`."""
    found = []
    for line in lines.splitlines():
        name, state, reason = _NODE.search(line), _STATE.search(line), _REASON.search(line)
        if name is not None and state is not None:
            states = frozenset(state[1].split("+"))
            found.append(NodeRecord(name=name[1], states=states, reason=reason[1] if reason is not None else ""))
    return found


def fields_of(line: str, *, last: str) -> dict[str, str]:
    """Keys and values of a line; `(null)` is empty. `last`: the key that comes last and whose value may be any text."""
    front, _, rest = line.partition(f" {last}=")
    marks = list(_KEY.finditer(front))
    ends = [*(mark.start() for mark in marks[1:]), len(front)]
    values = {mark[1]: front[mark.end() : end] for mark, end in zip(marks, ends, strict=False)}
    return {key: "" if value == "(null)" else value for key, value in {**values, last: rest}.items()}


def entries_in(text: str, kind: str) -> list[Mapping[str, Any]]:
    """Records of a kind (`nodes`, `jobs`) in the output of a command with `--json`. Raises NotUnderstoodError."""
    try:
        entries = json.loads(text)[kind]
    except (ValueError, KeyError, TypeError) as error:
        raise NotUnderstoodError(f"the list of {kind} was not understood: {error!r}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NotUnderstoodError(f"the list of {kind} was not understood: {str(entries)[:80]!r}")
    return entries


Kind = TypeVar("Kind", bound=NodeRecord)


def node_of(entry: Mapping[str, Any], kind: type[Kind]) -> Kind | None:
    """A node; None without a name or a state: what is not known is not touched."""
    name, states = text_of(entry.get("name")), states_of(entry.get("state"))
    if not name or not states:
        return None
    return kind(
        name=name,
        states=states,
        reason=text_of(entry.get("reason")),
        reason_by=text_of(entry.get("reason_set_by_user")),
        reason_at=number_of(entry.get("reason_changed_at")),
        comment=text_of(entry.get("comment")),
        extra=text_of(entry.get("extra")),
        features=frozenset(words_of(entry.get("active_features"), ",") or words_of(entry.get("features"), ",")),
        partitions=tuple(words_of(entry.get("partitions"), ",")),
        gres=text_of(entry.get("gres")),
        gres_used=text_of(entry.get("gres_used")),
        cpus=_whole(entry.get("cpus")),
        cpus_alloc=_whole(entry.get("alloc_cpus")),
        memory=_whole(entry.get("real_memory")),
        memory_alloc=_whole(entry.get("alloc_memory")),
        started_at=number_of(entry.get("slurmd_start_time")) or 0.0,
        address=text_of(entry.get("address")) or name,
        port=_whole(entry.get("port")) or SLURMD_PORT,
    )


def node_records(text: str, kind: type[Kind]) -> list[Kind]:
    """Nodes in what `scontrol show nodes --json` prints. Raises NotUnderstoodError."""
    return [record for entry in entries_in(text, "nodes") if (record := node_of(entry, kind)) is not None]


def mark_in(extra: str) -> str:
    """The mark in an `Extra`, behind which more may follow; empty where there is none."""
    try:
        value, _ = json.JSONDecoder().raw_decode(extra)
    except ValueError:
        return ""
    return str(value.get(MARK, "")) if isinstance(value, dict) else ""


class Columns:
    """Fields of squeue's or sinfo's `--Format`. JSON is up to 8 kB a job, for which squeue takes 150 kB of memory.

    A job's name or account may have any character, even a line break: the marks between fields are different each time,
    so that nobody can write them.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        mark = secrets.token_hex(6)
        self._fields, self._between, self._end = fields, f"~{mark}~", f"~{mark}!"
        ends = [*[self._between] * (len(fields) - 1), self._end]
        wanted = (f"{field}:0{end}" for field, end in zip(fields, ends, strict=True))
        self.option = f"--Format={','.join(wanted)}"

    def rows(self, text: str, *, mixed: bool = False) -> Iterator[dict[str, str]]:
        """What the command has printed, `(null)` as nothing. Raises NotUnderstoodError.

        `mixed`: its stderr may stand behind, and is passed over.
        """
        *rows, rest = text.split(self._end)
        if rest.strip() and not mixed:
            raise NotUnderstoodError(f"a list was cut off: {rest[-80:]!r}")
        for row in rows:
            values = row.removeprefix("\n").split(self._between)
            if len(values) != len(self._fields):
                raise NotUnderstoodError(f"a record was not understood: {row[:80]!r}")
            yield dict(zip(self._fields, ["" if value == "(null)" else value for value in values], strict=True))


def states_of(value: object) -> frozenset[str]:
    """States of a node or a job."""
    return frozenset(word.upper() for word in words_of(value, "+"))


def words_of(value: object, divider: str) -> list[str]:
    """A list, or one text with a divider."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(divider) if word.strip()]
    return [str(word) for word in value] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """A text; empty if it is none."""
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float | None:
    """A number above 0 that may be unset. Slurm gives 0 for a time that never was."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _whole(value: object) -> int:
    """A number that may be unset, in which case it is 0."""
    return int(number_of(value) or 0)


def expand(hosts: str) -> tuple[str, ...]:
    """Names in a host list such as `gpu-[0-3,7],cpu-0`, each once. Raises ValueError for more than Slurm ever has."""
    names: set[str] = set()  # a user's list may name each node thousands of times
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", hosts):
        prefix, _, inside = part.strip(",").partition("[")
        names.update((prefix + number for number in _numbers(inside.rstrip("]"))) if inside else (prefix,))
    return tuple(sorted(names))


def _numbers(ranges: str) -> Iterable[str]:
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        if max(len(first), len(last)) > _LONGEST_NUMBER or int(last or first) - int(first) > _MOST_NODES:
            raise ValueError(f"no nodes of a cluster: {item[:20]}")  # anybody may write a list that takes all memory
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def compress(names: Iterable[str]) -> str:
    """The names as Slurm abbreviates them: `gpu-[0-3,7]`."""
    plain: list[str] = []
    numbers: dict[str, list[int]] = {}
    for name in names:
        found = _NUMBERED.match(name)
        if found is None:
            plain.append(name)
        else:
            numbers.setdefault(found["prefix"], []).append(int(found["number"]))
    return ",".join([*sorted(plain), *(f"{prefix}{_ranges(numbers[prefix])}" for prefix in sorted(numbers))])


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return str(runs[0][0])
    return "[" + ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) + "]"
