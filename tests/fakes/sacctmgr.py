"""A model of what sacctmgr and scontrol do to slurmdbd's tables, as tried with 24.11 and 26.05."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from images.accounting.document import Key, State, untouched_default_qos
from images.accounting.fields import ASSOCIATION, QOS, Field, parse_tres, unset
from images.common.command import Result


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
    reservations: str = ""
    jobs: str = ""
    commands: list[list[str]] = field(default_factory=list)
    refuse: Callable[[list[str]], str | None] = lambda _: None
    """The message with which a changing command is refused, or None."""

    def __post_init__(self) -> None:
        self.qos.setdefault("normal", untouched_default_qos())

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        assert timeout > 0
        assert env is None or "SLURM_CONF" in env
        words = list(argv)
        if words[0] == "sacct":
            return Result(code=0, stdout=self.jobs)
        if words[:3] == ["scontrol", "show", "reservation"]:
            return Result(code=0, stdout=self.reservations)
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

    def state(self) -> State:
        """Everything, for comparison."""
        return State(
            qos={(name,): dict(values) for name, values in self.qos.items()},
            accounts={(name,): dict(values) for name, values in self.accounts.items()},
            associations={key: dict(values) for key, values in self.associations.items()},
            users={(name,): dict(values) for name, values in self.users.items()},
        )

    # ---------------------------------------------------------------- list

    def _list(self, words: list[str]) -> str:
        what = words[0]
        if what == "cluster":
            return f"{self.cluster}\n"
        if what == "qos":
            return "".join(_row([name], QOS, values) for name, values in self.qos.items())
        if what == "user":
            users = [f"{name}|{v['default_account']}|{v['admin_level'].title()}\n" for name, v in self.users.items()]
            return "".join(["root|root|Administrator\n", *users])
        if what == "account":
            key = "description" if words[-1].endswith("Descr") else "organization"
            return "".join(f"{name}|{values[key]}\n" for name, values in self.accounts.items())
        assert words[:4] == ["assoc", "wopl", "where", f"cluster={self.cluster}"]
        blank = unset(ASSOCIATION)
        rows = [_row(["root", "", "", ""], ASSOCIATION, blank), _row(["root", "root", "", ""], ASSOCIATION, blank)]
        rows += [_row([name, "", "", v["parent"]], ASSOCIATION, v) for name, v in self.accounts.items()]
        rows += [
            _row([account, user, partition, ""], ASSOCIATION, values)
            for (user, account, partition), values in self.associations.items()
        ]
        return "".join(rows)

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
            self.qos[name] = unset(QOS)
            self._set(self.qos[name], QOS, options)

    def _modify_qos(self, where: dict[str, str], new: dict[str, str]) -> None:
        self._set(self._known(self.qos, where["name"]), QOS, new)

    def _delete_qos(self, where: dict[str, str], _: dict[str, str]) -> None:
        self._known(self.qos, where["name"])
        self._refuse_busy(qos=where["name"])
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
            self.accounts[name] = {"parent": parent} | unset(ASSOCIATION) | texts
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
                values = self.associations[(name, account, partition)] = unset(ASSOCIATION)
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
        for line in self.jobs.splitlines():
            job = dict(zip(("id", "user", "account", "qos"), line.split("|"), strict=True))
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

    def _set(self, values: dict[str, Any], fields: tuple[Field, ...], options: dict[str, str]) -> None:
        by_option = {item.option: item for item in fields}
        for option, text in options.items():
            if option == "cluster":
                continue
            item = by_option[option]
            values[item.key] = _taken(item, values[item.key], text)
            names = values[item.key] if item.kind == "names" else [text] if option == "defaultqos" else []
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
        if values["default_qos"] is not None and values["default_qos"] not in allowed:
            raise RefusedBySlurmError(f"the default qos {values['default_qos']} is not in {allowed}")

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


def _taken(item: Field, old: Any, text: str) -> Any:
    """The value that an option gives."""
    if item.kind == "tres":
        merged = {**old, **parse_tres(text)} if text else old
        return {name: amount for name, amount in merged.items() if amount != -1}
    if text == "-1":
        return item.parse("")
    if item.kind in {"minutes", "seconds"}:
        return int(text)
    if item.kind == "text":
        return text.lower() if item.key == "description" else text
    return item.parse(text)


def _row(front: list[str], fields: tuple[Field, ...], values: Mapping[str, Any]) -> str:
    return "|".join([*front, *(_printed(item, values[item.key]) for item in fields)]) + "\n"


def _printed(item: Field, value: Any) -> str:
    if value is None:
        return ""
    if item.kind == "tres":
        return ",".join(f"{name}={amount}{'M' if name == 'mem' else ''}" for name, amount in sorted(value.items()))
    if item.kind in {"names", "flags"}:
        return ",".join(value)
    if item.kind in {"minutes", "seconds", "period"}:
        seconds = value * 60 if item.kind == "minutes" else value
        return f"{seconds // 86400}-{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{value:.6f}" if item.kind == "factor" else str(value)
