"""What `sacctmgr dump` wrote: QOS and accounts with their limits; users, whose numbers it does not have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cli.importing.draft import Draft
from cli.importing.files import UNITS, Parameter, read_text
from config.sections.accounting import Association, Qos

_LINE = re.compile(r"(?i)\s*(QOS|Cluster|Parent|Account|User)\s*-\s*'?([^':]*)'?(.*)")
_OPTION = re.compile(r":([A-Z][A-Za-z]+)=('[^']*'|.*?)(?=:[A-Z][A-Za-z]+=|$)")
_PARENT = "2147483647"
"""What the database keeps for Fairshare=parent."""
_FIELDS = {"max_wall_duration_per_job": "max_wall", "min_prio_thresh": "min_prio_threshold"}
_LISTS = {"qos", "flags", "preempt"}
_ROOT = {"Fairshare=1", "QOS='normal'", "DefaultAccount='root'", "AdminLevel='Administrator'"}
"""What the root of all accounts, and the user of this name, have in any cluster."""


def read_dump(path: Path, draft: Draft) -> dict[str, list[str]]:
    """QOS and accounts into the draft; the accounts of each user. Raises Failure where the file cannot be read."""
    users: dict[str, list[str]] = {}
    parent = "root"
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(text.rstrip())
        if found is None:
            draft.leave(
                Parameter(file=str(path), line=number, key="", value=text), "is no line that sacctmgr dump writes"
            )
            continue
        kind, name = found[1].lower(), found[2]
        parameter = Parameter(file=str(path), line=number, key=found[1], value=name)
        if kind == "parent":
            parent = name
        elif kind == "user" and name != "root":
            users.setdefault(name, []).append(parent)
            draft.leave(parameter, "has no uid in a dump: write `id -u` into the comment at the end of the stack file")
        elif kind == "qos":
            _put(("qos", name), found[3], parameter, draft)
        elif kind == "account" and name != "root":
            draft.put(("accounts", name), {} if parent == "root" else {"parent": parent}, parameter)
            _put(("accounts", name), found[3], parameter, draft)
        else:
            for key, value in _OPTION.findall(found[3]):
                if f"{key}={value}" not in _ROOT:
                    option = Parameter(file=str(path), line=number, key=key, value=value)
                    draft.leave(option, "is of the root of all accounts: set it with sacctmgr")
    return users


def _put(place: tuple[str, str], options: str, parameter: Parameter, draft: Draft) -> None:
    known = Qos.model_fields if place[0] == "qos" else {*Association.model_fields, "description", "organization"}
    draft.put(place, draft.sections.get(place[0], {}).get(place[1], {}), parameter)
    for key, quoted in _OPTION.findall(options):
        value = quoted.strip("'")
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=TRES)(?=[A-Z])", "_", key)
        field = re.sub("_pa$", "_per_account", re.sub("_pu$", "_per_user", snake.lower()))
        field = _FIELDS.get(field, field)
        option = Parameter(file=parameter.file, line=parameter.line, key=key, value=value)
        if field in known:
            draft.put((*place, field), _value(field, value), option)
        else:
            draft.leave(option, "the stack file has nothing of the kind: set it with sacctmgr")


def _value(field: str, text: str) -> Any:
    """As the stack file has it; what is not understood stays text, which `validate` refuses."""
    if "tres" in field:
        return {name: _amount(name, count) for name, _, count in (part.rpartition("=") for part in text.split(","))}
    if field == "fairshare" and text == _PARENT:
        return "parent"
    if field == "preempt_exempt_time" and text.isdecimal():
        return f"{int(text) // 60}:{int(text) % 60:02}"
    if field in _LISTS:
        return [part for part in text.split(",") if part]
    if re.fullmatch(r"\d+", text) and "wall" not in field:
        return int(text)
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else text.lower() if field == "preempt_mode" else text


def _amount(name: str, text: str) -> Any:
    """`100G` of memory in MiB; of other resources the number."""
    found = re.fullmatch(r"(\d+)([kmgtp]?)", text.lower())
    number = int(found[1]) * UNITS[found[2]] if found else None
    return text if found is None or number is None else number // 2**20 if name == "mem" and found[2] else number
