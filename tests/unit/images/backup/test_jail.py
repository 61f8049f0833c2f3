"""How the jail is put back, and what restic says of it."""

from __future__ import annotations

import json

import pytest

from images.backup.restic import failed_files
from images.backup.restore import is_done_but_for_files
from images.common.command import Result

END = {"message_type": "exit_error", "code": 1, "message": "Fatal: There were 1 errors\n"}


def error(item: str, message: str) -> dict[str, object]:
    return {"message_type": "error", "error": {"message": message}, "during": "restore", "item": item}


@pytest.mark.parametrize(
    ("item", "message", "single"),
    [
        ("/home/a", "open /jail/home/a: permission denied", True),
        ("/home/a", "xattr.LSet /jail/home/a user.a: no space left on device", True),
        ("/home/a", "write /jail/home/a: no space left on device", False),
        ("/home/o'a", "write /jail/home/o'a: read-only file system", False),
    ],
)
def test_a_file_that_cannot_be_put_back_is_not_a_full_volume(item: str, message: str, single: bool) -> None:
    done = Result(code=1, stderr="\n".join(map(json.dumps, (error(item, message), END))))
    assert is_done_but_for_files(done) is single


def test_no_name_of_a_file_hides_that_it_was_not_put_back() -> None:
    """restic leaves U+0085 in its JSON as it is."""
    told = error("/home/a\u0085b", "lsetxattr /jail/home/a\u0085b: operation not supported")
    assert len(failed_files(Result(code=1, stderr=json.dumps(told, ensure_ascii=False)))) == 1


def test_a_restore_that_did_not_come_to_its_end_is_none_of_single_files() -> None:
    names = error("There were 1 errors", "open There were 1 errors: permission denied")
    fatal = {**END, "message": "Fatal: unable to load index"}
    assert not is_done_but_for_files(Result(code=1, stderr="\n".join(map(json.dumps, (names, fatal)))))
