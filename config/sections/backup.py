"""`slurmstack:backup`: backups of the whole cluster to an S3 store."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from config.base import Matching, Quantity, Section, Span, once, span_of
from config.names import ObjectName, check_server, port_of


def _server(url: str) -> str:
    check_server(url)
    return url


class Keep(Section):
    """Backups that are kept; what is older goes. A backup may count for several of them."""

    last: int = Field(default=3, ge=0, le=10_000, strict=True)
    """The last ones, whenever they were made."""
    daily: int = Field(default=7, ge=0, le=10_000, strict=True)
    """The last one of a day, for so many days."""
    weekly: int = Field(default=5, ge=0, le=10_000, strict=True)
    """The last one of a week, for so many weeks."""
    monthly: int = Field(default=12, ge=0, le=10_000, strict=True)
    """The last one of a month, for so many months."""

    def _problem(self) -> str | None:
        kept = self.last or self.daily or self.weekly or self.monthly
        return None if kept else "keeps nothing; remove backup where no backup is wanted"


class Backup(Section):
    """Where backups go, when they are made, and how many are kept (docs/backups.md)."""

    endpoint: Annotated[
        str,
        Matching(
            r"^https?://[A-Za-z0-9.:\[\]-]+$",
            "is not the address of an S3 store: https://HOST or https://HOST:PORT, without a path",
        ),
        AfterValidator(_server),
    ]
    """The S3 store, for example `https://storage.example.com`. `http://` sends what is encrypted anyway, but the
    signatures of the access key too."""
    bucket: Annotated[
        str,
        Matching(
            r"^(?!.*[.]{2})(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
            "is not the name of a bucket: 3 to 63 small letters, digits, '-' and single '.', and no address",
        ),
    ]
    """The bucket. Where there is none, it is made, if the access key may."""
    prefix: (
        Annotated[
            str,
            Matching(
                r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$",
                "is not a folder in a bucket: letters, digits, '_', '.' and '-', with '/' between names",
            ),
            Field(max_length=200),
        ]
        | None
    ) = None
    """Folder in the bucket, which no other cluster may have. Default: the namespace's name."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,64}$")
    """Region that the store expects in signatures."""
    credentials_secret: ObjectName
    """Secret in the namespace, which you make, with the keys `access-key-id`, `secret-access-key` and `password`. The
    last encrypts the backups: without it nobody can read them, so keep it outside of the cluster too. `ca.crt`, where
    the store's certificate is of an authority of your own."""
    schedule: Annotated[
        str,
        Matching(
            r"^ *[0-9*,/-]+( +[0-9*,/-]+){4} *$",
            "is not a schedule: five fields (minute, hour, day, month, weekday) of numbers, such as '0 2 * * *'",
        ),
        AfterValidator(lambda text: " ".join(text.split())),
    ] = "0 2 * * *"
    """When a backup is made, as cron has it, in UTC."""
    keep: Keep = Field(default_factory=Keep)
    """Backups that are kept."""
    exclude: Annotated[
        tuple[
            Annotated[
                str,
                Matching(
                    r"^(/(?![.]{1,2}(/|$))[^/*?\[\]\\\x00-\x1f\x7f]+)+$",
                    "is not a path such as /scratch, without wildcards, '..' and a '/' at its end",
                ),
            ],
            ...,
        ],
        AfterValidator(once),
    ] = ()
    """Paths in the jail that are left out. `/tmp`, `/var/tmp` and `/run` always are."""
    largest_file: Quantity = "1Ti"
    """Files of the jail that are larger are left out. A file of mere holes, which takes no room, has a size too."""
    time_limit: Annotated[Span, span_of(60, 7 * 86_400)] = "12h"
    """How long a backup may take before it is given up."""

    @property
    def port(self) -> int:
        """TCP port of the store."""
        return port_of(self.endpoint)

    def repository(self, namespace: str) -> str:
        """URL of the repository of a cluster in this namespace."""
        return f"{self.endpoint}/{self.bucket}/{self.prefix or namespace}"
