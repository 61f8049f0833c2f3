"""A model of what sacctmgr does to slurmdbd's tables, as tried with 24.11 and 26.05.

What an option and a column are called and how a value is written is from sacctmgr(1), and not from our own tables:
tests/slurm/test_policy.py has the same policies made here and by a real slurmdbd, and the same printed by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from images.common.command import Result

Kind = Literal["text", "number", "factor", "tres", "minutes", "seconds", "clock", "names"]
Key = tuple[str, ...]
"""User, account, and partition or an empty string."""

_LIMITS: Final[dict[str, tuple[str, Kind, Any]]] = {
    "priority": ("Priority", "number", None),
    "grptres": ("GrpTRES", "tres", {}),
    "grptresmins": ("GrpTRESMins", "tres", {}),
    "grptresrunmins": ("GrpTRESRunMins", "tres", {}),
    "grpjobs": ("GrpJobs", "number", None),
    "grpsubmitjobs": ("GrpSubmit", "number", None),
    "grpwall": ("GrpWall", "minutes", None),
    "maxtresperjob": ("MaxTRES", "tres", {}),
    "maxtrespernode": ("MaxTRESPerNode", "tres", {}),
    "maxtresminsperjob": ("MaxTRESMins", "tres", {}),
    "maxwall": ("MaxWall", "minutes", None),
}

ASSOCIATION: Final[dict[str, tuple[str, Kind, Any]]] = {
    **_LIMITS,
    "fairshare": ("Share", "text", "1"),
    "qos": ("QOS", "names", ()),
    "defaultqos": ("DefaultQOS", "text", ""),
    "maxjobs": ("MaxJobs", "number", None),
    "maxsubmitjobs": ("MaxSubmit", "number", None),
    "comment": ("Comment", "text", ""),
}
"""Option -> column, how its value is written, and what it is without the option."""

QOS: Final[dict[str, tuple[str, Kind, Any]]] = {
    **_LIMITS,
    "priority": ("Priority", "number", 0),
    "preempt": ("Preempt", "names", ()),
    "preemptmode": ("PreemptMode", "text", "cluster"),
    "preemptexempttime": ("PreemptExemptTime", "clock", None),
    "gracetime": ("GraceTime", "seconds", 0),
    "flags": ("Flags", "names", ()),
    "usagefactor": ("UsageFactor", "factor", 1.0),
    "usagethreshold": ("UsageThres", "factor", None),
    "limitfactor": ("LimitFactor", "factor", None),
    "maxtresperuser": ("MaxTRESPU", "tres", {}),
    "maxtresperaccount": ("MaxTRESPA", "tres", {}),
    "mintresperjob": ("MinTRES", "tres", {}),
    "maxjobsperuser": ("MaxJobsPU", "number", None),
    "maxjobsperaccount": ("MaxJobsPA", "number", None),
    "maxsubmitjobsperuser": ("MaxSubmitPU", "number", None),
    "maxsubmitjobsperaccount": ("MaxSubmitPA", "number", None),
    "minpriothresh": ("MinPrioThres", "number", None),
    "description": ("Descr", "text", ""),
}

Options = Mapping[str, tuple[str, Kind, Any]]


def blank(options: Options) -> dict[str, Any]:
    """What an object has that was made without any option."""
    return {name: deepcopy(value) for name, (_, _, value) in options.items()}


class RefusedBySlurmError(Exception):
    """The command is refused with this message."""


@dataclass
class FakeSlurm:
    """Accounts, QOS, users and associations of one cluster."""

    cluster: str = "test"
    qos: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    associations: dict[Key, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Number, user, QOS and account."""
    commands: list[list[str]] = field(default_factory=list)
    refuse: Callable[[list[str]], str | None] = lambda _: None
    """The message with which a changing command is refused, or None."""

    def __post_init__(self) -> None:
        self.qos.setdefault("normal", blank(QOS) | {"description": "Normal QOS default"})

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        assert timeout > 0
        assert env is None or "SLURM_CONF" in env
        words = list(argv)
        if words[0] == "sacct":
            (between,) = (word.partition("=")[2] for word in words if word.startswith("--delimiter="))
            return Result(code=0, stdout="".join(f"{between.join(job)}\n" for job in self.jobs))
        if words[:3] == ["scontrol", "show", "reservation"]:
            return Result(code=0, stdout="No reservations in the system\n")
        if "list" in words:
            return Result(code=0, stdout=self._list(words[words.index("list") + 1 :]))
        self.commands.append(words)
        if message := self.refuse(words):
            return Result(code=1, stderr=message)
        try:
            if words[0] == "sacctmgr":
                self._change(words[2:])
        except RefusedBySlurmError as error:
            return Result(code=1, stderr=str(error))
        return Result(code=0)

    # ---------------------------------------------------------------- list

    def _list(self, words: list[str]) -> str:
        columns = next(word for word in words if word.startswith("format=")).partition("=")[2].split(",")
        what, *where = words[:-1]
        assert what != "assoc" or where == ["wopl", "where", f"cluster={self.cluster}"]
        rows = getattr(self, f"_{what}_rows")()
        return "".join("|".join(row[column] for column in columns) + "\n" for row in rows)

    def _cluster_rows(self) -> list[dict[str, str]]:
        return [{"Cluster": self.cluster}]

    def _qos_rows(self) -> list[dict[str, str]]:
        return [{"Name": name, **_printed(QOS, values)} for name, values in self.qos.items()]

    def _user_rows(self) -> list[dict[str, str]]:
        users = {"root": {"default_account": "root", "admin_level": "administrator"}, **self.users}
        return [
            {"User": name, "DefaultAccount": values["default_account"], "Admin": values["admin_level"].title()}
            for name, values in users.items()
        ]

    def _account_rows(self) -> list[dict[str, str]]:
        root = {"description": "default root account", "organization": "root"}
        return [
            {"Account": name, "Descr": values["description"], "Org": values["organization"]}
            for name, values in {"root": root, **self.accounts}.items()
        ]

    def _assoc_rows(self) -> list[dict[str, str]]:
        bare = blank(ASSOCIATION)
        rows = [("root", "", "", "", bare | {"qos": ("normal",)}), ("root", "root", "", "", bare)]
        rows += [(name, "", "", values["parent"], values) for name, values in self.accounts.items()]
        rows += [(key[1], key[0], key[2], "", values) for key, values in self.associations.items()]
        return [
            {"Account": account, "User": user, "Partition": partition, "ParentName": parent}
            | _printed(ASSOCIATION, values)
            for account, user, partition, parent, values in rows
        ]

    # ---------------------------------------------------------------- change

    def _change(self, words: list[str]) -> None:
        verb, what, *rest = words
        if verb == "add":
            getattr(self, f"_add_{what}")(rest[0].split(","), _pairs(rest[1:]))
            return
        where = _pairs(rest[1 : rest.index("set")] if "set" in rest else rest[1:])
        new = _pairs(rest[rest.index("set") + 1 :]) if "set" in rest else {}
        getattr(self, f"_{verb}_{what}")(where, new)
        self._check()

    def _add_qos(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            if name in self.qos:
                raise RefusedBySlurmError(f"Already existing qos {name}")
            self.qos[name] = blank(QOS)
            self._set(self.qos[name], QOS, options)

    def _modify_qos(self, where: dict[str, str], new: dict[str, str]) -> None:
        values = self._known(self.qos, where["name"])
        before = values["preempt"]
        self._set(values, QOS, new)
        if where["name"] in self._preempted(where["name"]):
            values["preempt"] = before
            raise RefusedBySlurmError("QOS Preemption loop detected")

    def _preempted(self, name: str) -> set[str]:
        """All that a QOS preempts, by way of others too."""
        found: set[str] = set()
        left = {*self.qos[name]["preempt"]}
        while left:
            found |= left
            left = {other for one in left for other in self.qos[one]["preempt"]} - found
        return found

    def _delete_qos(self, where: dict[str, str], _: dict[str, str]) -> None:
        self._known(self.qos, where["name"])
        self._refuse_busy(qos=where["name"])
        if any(values["defaultqos"] == where["name"] for values in self.associations.values()):
            raise RefusedBySlurmError(f"{where['name']} is somebody's default qos")
        del self.qos[where["name"]]
        for values in [*self.accounts.values(), *self.associations.values()]:
            values["qos"] = tuple(name for name in values["qos"] if name != where["name"])
        for values in self.qos.values():
            values["preempt"] = tuple(name for name in values["preempt"] if name != where["name"])

    def _add_account(self, names: list[str], options: dict[str, str]) -> None:
        parent = options.pop("parent", "root")
        self._known(self.accounts, parent) if parent != "root" else None
        for name in names:
            if name in self.accounts:
                raise RefusedBySlurmError(f"Already existing account {name}")
            texts = {"description": name, "organization": name if parent == "root" else parent}
            texts |= {key: options[key] for key in texts if key in options}
            self.accounts[name] = {"parent": parent} | blank(ASSOCIATION) | texts
            self._set(self.accounts[name], ASSOCIATION, {k: v for k, v in options.items() if k not in texts})
        self._check()

    def _modify_account(self, where: dict[str, str], new: dict[str, str]) -> None:
        for name in where["name"].split(","):
            values = self._known(self.accounts, name)
            if "parent" in new and name in [*self._path(new["parent"]), new["parent"]]:
                raise RefusedBySlurmError(f"{new['parent']} is a child of {name}")
            texts = [key for key in ("parent", "description", "organization") if key in new]
            for key in texts:
                values[key] = new[key]
            self._set(values, ASSOCIATION, {key: value for key, value in new.items() if key not in texts})

    def _delete_account(self, where: dict[str, str], _: dict[str, str]) -> None:
        name = where["name"]
        self._known(self.accounts, name)
        if any(values["parent"] == name for values in self.accounts.values()):
            raise RefusedBySlurmError(f"{name} has accounts below")
        if any(key[1] == name for key in self.associations):
            raise RefusedBySlurmError(f"{name} has users")
        self._refuse_busy(account=name)
        del self.accounts[name]

    def _add_user(self, names: list[str], options: dict[str, str]) -> None:
        accounts = options.pop("account").split(",")
        partition = options.pop("partition", "")
        for account in accounts:
            self._known(self.accounts, account)
        for name in names:
            self.users.setdefault(name, {"default_account": accounts[0], "admin_level": "none"})
            for account in accounts:
                if (name, account, partition) in self.associations:
                    raise RefusedBySlurmError("Request didn't affect anything")
                values = self.associations[(name, account, partition)] = blank(ASSOCIATION)
                self._set(values, ASSOCIATION, options)
        self._check()

    def _modify_user(self, where: dict[str, str], new: dict[str, str]) -> None:
        for name in where["name"].split(","):
            user = self._known(self.users, name)
            if "defaultaccount" in new:
                self._known(self.associations, (name, new["defaultaccount"], ""))
                user["default_account"] = new["defaultaccount"]
            user["admin_level"] = new.get("adminlevel", user["admin_level"])
        options = {key: value for key, value in new.items() if key not in {"defaultaccount", "adminlevel"}}
        found = self._matching(where) if options else {}
        if options and not found:
            raise RefusedBySlurmError("Request didn't affect anything")
        for values in found.values():
            self._set(values, ASSOCIATION, options)

    def _delete_user(self, where: dict[str, str], _: dict[str, str]) -> None:
        found = self._matching(where)
        for user, account, _partition in found:
            others = [key for key in self.associations if key[0] == user and key not in found]
            if others and self.users[user]["default_account"] == account:
                raise RefusedBySlurmError("You can not remove the default account of a user")
        for key in found:
            self._refuse_busy(user=key[0], account=key[1])
            del self.associations[key]
        left = {key[0] for key in self.associations}
        self.users = {name: values for name, values in self.users.items() if name in left}

    def _refuse_busy(self, **used: str) -> None:
        for values in self.jobs:
            job = dict(zip(("id", "user", "qos", "account"), values, strict=True))
            if used.items() <= job.items():
                raise RefusedBySlurmError(
                    f"Error with request: Job(s) active, cancel job(s) before remove: {job['id']}"
                )

    def _matching(self, where: dict[str, str]) -> dict[Key, dict[str, Any]]:
        names, accounts = where["name"].split(","), where.get("account")
        return {
            key: values
            for key, values in self.associations.items()
            if key[0] in names
            and (accounts is None or key[1] in accounts.split(","))
            and ("partition" not in where or key[2] == where["partition"])
        }

    def _set(self, values: dict[str, Any], options: Options, new: dict[str, str]) -> None:
        for option, text in new.items():
            if option == "cluster":
                continue
            _, kind, without = options[option]
            values[option] = _taken(option, kind, values[option], text, without)
            names = values[option] if option in {"qos", "preempt"} else [text] if option == "defaultqos" else []
            for name in names:
                if name != "-1":
                    self._known(self.qos, name)

    def _check(self) -> None:
        """Nobody's default QOS may be one that is not allowed."""
        for (_, account, _), values in self.associations.items():
            self._check_default(values, values["qos"] or self._allowed(account))
        for account, values in self.accounts.items():
            self._check_default(values, self._allowed(account))

    def _check_default(self, values: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
        if values["defaultqos"] and values["defaultqos"] not in allowed:
            raise RefusedBySlurmError(f"the default qos {values['defaultqos']} is not in {allowed}")

    def _allowed(self, account: str) -> tuple[str, ...]:
        for name in [account, *self._path(account)]:
            if self.accounts[name]["qos"]:
                return tuple(self.accounts[name]["qos"])
        return ("normal",)

    def _path(self, account: str) -> list[str]:
        found: list[str] = []
        while account != "root" and (account := self.accounts[account]["parent"]) != "root":
            found.append(account)
        return found

    def _known(self, where: Mapping[Any, dict[str, Any]], name: Any) -> dict[str, Any]:
        if name not in where:
            raise RefusedBySlurmError(f"{name} is not known")
        return where[name]


def _pairs(words: list[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _taken(option: str, kind: Kind, old: Any, text: str, without: Any) -> Any:
    """The value that an option gives."""
    if kind == "tres":
        pairs = (item.partition("=") for item in text.split(",") if item)
        return {name: amount for name, amount in {**old, **{n: int(v) for n, _, v in pairs}}.items() if amount != -1}
    if text == "-1":
        return {"gracetime": 0, "flags": ()}.get(option, deepcopy(without))
    value = _READ[kind](text)
    return value.lower() if option == "description" else value


def _seconds(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return (hours * 60 + minutes) * 60 + seconds


_READ: Final[dict[Kind, Callable[[str], Any]]] = {
    "text": str,
    "names": lambda text: tuple(sorted(text.split(","))) if text else (),
    "number": int,
    "minutes": int,
    "seconds": int,
    "clock": _seconds,
    "factor": float,
}


def _printed(options: Options, values: Mapping[str, Any]) -> dict[str, str]:
    """Each column."""
    return {column: _text(kind, values[name]) for name, (column, kind, _) in options.items()}


def _text(kind: Kind, value: Any) -> str:
    if value is None:
        return ""
    if kind == "tres":
        return ",".join(f"{name}={amount}{'M' if name == 'mem' else ''}" for name, amount in sorted(value.items()))
    if kind == "names":
        return ",".join(value)
    if kind in {"minutes", "seconds", "clock"}:
        seconds = value * 60 if kind == "minutes" else value
        days = f"{seconds // 86400}-" if seconds >= 86400 else ""
        return f"{days}{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{value:.6f}" if kind == "factor" else str(value)
