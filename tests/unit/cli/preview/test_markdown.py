"""A preview as a comment: complete, short enough, and no way out of it for what a pull request chooses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.change.change import Change, PropertyChange, of_object
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched, Touched
from cli.preview.document import LIMIT, PolicyPlan, Preview, markdown, property_lines
from tests.fakes.kubectl import thing


def preview(**fields: Any) -> Preview:
    return Preview(**{"stack": "prod", "against": "cluster", **fields})


def update(*properties: PropertyChange, name: str = "default") -> Change:
    return Change(action="update", resource=of_object(thing("StatefulSet", name)), properties=properties)


REPLICAS = update(PropertyChange(path="spec.replicas", old=2, new=3))


def effect(**fields: str) -> Effect:
    whole: dict[str, Any] = {"action": "delete", "kind": "file system", "name": "jail", "because": (), "refused": ""}
    return Effect(**{**whole, "cost": "all files are lost", **fields})


JOB = Touched(
    id="7",
    user="alice",
    partition="main",
    state="RUNNING",
    nodes=("a-0",),
    effect="waits",
    why="pool 'a' leaves",
)


def outside(comment: str) -> str:
    """What a reader of Markdown sees outside of blocks: a fence is closed by no less than what opened it."""
    kept, fence = [], ""
    for line in comment.splitlines():
        run = re.match(r" {0,3}(`{3,})([^`]*)$", line)
        if not fence and run:
            fence = run.group(1)
        elif fence and run and len(run.group(1)) >= len(fence) and not run.group(2).strip():
            fence = ""
        elif not fence:
            kept.append(line)
    assert not fence, "a block is never closed"
    return "\n".join(kept)


def test_what_is_refused_and_lost_comes_before_everything_else() -> None:
    comment = markdown(
        preview(
            changes=(REPLICAS,),
            effects=(effect(), effect(name="x", cost="", refused="it is protected")),
            notes=("pool 'a' leaves",),
            policy=PolicyPlan(changes=("+ qos urgent",), notes=()),
            jobs=JobsTouched(running=1, touched=(JOB,)),
        )
    )
    parts = ["**refused**, 1 to correct", "! refused: file system x: it is protected", "all files are lost"]
    parts += ["7 alice main RUNNING is waited for", "note: pool 'a' leaves", "+ qos urgent", "spec.replicas"]
    places = [comment.index(part) for part in parts]
    assert places == sorted(places)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=60) | st.text(alphabet="`\n~<>@/ -+", min_size=1, max_size=60))
@example("```\n@everyone\n```")
@example("````` ` ``` ")
@example("<!-- slurmstack preview of other -->")
@example("a\r\n/approve\n/merge")
@example("\u2028@everyone \u202etxt.exe")
@example("\ud800")
def test_no_text_gets_out_of_its_block_whatever_holds_it(hostile: str) -> None:
    calm, harmed = (
        preview(
            changes=(update(PropertyChange(path=text, old=text, new=[text]), name=text),),
            effects=(effect(name=text, cost=text, refused=text),),
            notes=(text,),
            stack=text,
            policy=PolicyPlan(changes=(text,), notes=()),
            jobs=JobsTouched(unread=text),
        )
        for text in ("calm", hostile)
    )
    comment = markdown(harmed)
    named = re.sub("[^A-Za-z0-9_.-]+", "_", hostile)
    assert outside(comment) == outside(markdown(calm)).replace("calm", named)
    assert len(comment.encode()) < LIMIT
    assert all(each.isprintable() or each == "\n" for each in comment)


LONG = "x" * 400


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (1, None, ["-   a: 1"]),
        (
            f"{LONG}old",
            f"{LONG}new",
            [f"{sign}   a: ...{'x' * 40}{what}... (403 characters)" for sign, what in (("-", "old"), ("+", "new"))],
        ),
        ("k=1\nl=2\nm=3\n", "k=1\nl=4\nm=3\nn=5\n", ["    a:", "-       l=2", "+       l=4", "+       n=5"]),
        ("", "k\n" * 50, ["    a:", *["+       k"] * 40, "        ... 10 more changed lines; --json has all"]),
    ],
    ids=["number", "long", "text", "many lines"],
)
def test_of_a_change_people_are_shown_what_differs(old: Any, new: Any, lines: list[str]) -> None:
    assert list(property_lines(PropertyChange(path="a", old=old, new=new))) == lines


@pytest.mark.parametrize("value", ["ü" * 1000, "x\n" * 1000])
def test_a_huge_change_is_cut_and_says_how_much_is_missing(value: str) -> None:
    many = tuple(
        update(PropertyChange(path="data.file", old="", new=value), name=f"object-{number}") for number in range(100)
    )
    whole = preview(
        changes=many,
        effects=tuple(effect(name=f"fs-{number}", refused=value) for number in range(100)),
        notes=("y" * 100_000,),
    )
    comment = markdown(whole)
    assert LIMIT // 2 < len(comment.encode()) <= LIMIT
    assert re.search(r"# \.\.\. \d+ more lines are left out; `slurmstack preview` prints all", comment)
    assert comment.endswith("```")
