"""Writes the archive: all parts, none of their secrets, and a list of what is in it and what is not."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cli.bundle.parts import Read
from cli.bundle.redact import Redactor
from cli.errors import USAGE, Failure
from cli.logs.sources import side_by_side
from cli.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST = "MANIFEST.txt"

_MOST, _LEAST, _ALL = 2 * 1024**2, 64 * 1024, 256 * 1024**2
"""Characters of one file and of all: of a longer one the end is kept, and less where there are many."""


@dataclass(kw_only=True)
class Bundle:
    """What was read, by the names of files, and what was not."""

    texts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a file is not there."""
    redact: Redactor = field(default_factory=Redactor)
    """Takes secrets out: nothing is kept or written that has not gone through it."""

    def read(self, parts: dict[str, Read], tell: Callable[[int, int, str], None]) -> int:
        """Read parts side by side. Returns how many there were."""
        most = max(_LEAST, min(_MOST, _ALL // max(len(parts), 1)))

        def read_one(read: Read) -> str:
            return _end_of(self.redact(read()), most)  # cut at last: half of a secret is found by nobody

        with side_by_side() as pool:
            asked = {pool.submit(read_one, read): name for name, read in parts.items()}
            for number, answer in enumerate(as_completed(asked), start=1):
                name = asked[answer]
                tell(number, len(asked), name)
                try:
                    self.texts[name] = answer.result()
                except Failure as failure:
                    self.missing[name] = plain(str(failure))
                except (LookupError, TypeError, ValueError, AttributeError) as error:  # in a form that nobody expected
                    self.missing[name] = f"not understood: {type(error).__name__}"
        return sum(name in self.texts for name in parts)

    def manifest(self, head: str) -> str:
        """The list of the files, and of what could not be read and why."""
        width = max(map(len, (*self.texts, *self.missing, "")))
        files = [f"{name.ljust(width)} {len(text.encode()):>9} bytes" for name, text in sorted(self.texts.items())]
        missing = [f"{name.ljust(width)} {why}" for name, why in sorted(self.missing.items())]
        return self.redact("\n".join([head, "", "Files:", *files, "", "Not read:", *(missing or ["nothing"]), ""]))

    def write(self, stream: IO[bytes], *, folder: str, head: str, at: datetime) -> None:
        """Write the archive, with all files in one folder."""
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for name, text in [(MANIFEST, self.manifest(head)), *sorted(self.texts.items())]:
                content = text.encode("utf-8", "replace")
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime, member.mode = len(content), int(at.timestamp()), 0o600
                archive.addfile(member, io.BytesIO(content))


def _end_of(text: str, most: int) -> str:
    over = len(text) - most
    return text if over <= 0 else f"[the first {over} characters are left out]\n{text[over:]}"


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that was not there before, for its owner only; gone again where the work on it fails.

    Raises Failure before the work begins if there is one already.
    """
    try:
        stream = path.open("xb")
    except FileExistsError:
        raise Failure(
            f"{path} is there already", hint="it is not overwritten: --output names another", code=USAGE
        ) from None
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}", code=USAGE) from None
    try:
        with stream:
            path.chmod(0o600)
            yield stream
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def stamp(at: datetime) -> str:
    """A time as a part of a file's name."""
    return f"{at:%Y%m%dT%H%M%SZ}"
