"""Access: the way to one cluster, as one user.

A kubeconfig context, or the service account of the pod that we run in, becomes an ``Access``.
Before every request the client asks it for a ``Grant``: the headers and the TLS identity that
are valid *now*. Files are re-read and plugins run again behind that call, so tokens and
certificates rotate without a restart.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from backstay.seam.transport import NO_HEADERS, Tls


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one request needs in order to be accepted."""

    headers: Mapping[str, str] = NO_HEADERS
    tls: Tls | None = None
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"Grant(headers={sorted(self.headers)}, tls={self.tls!r})"


class Access(Protocol):
    """One cluster, one user."""

    @property
    def server(self) -> str:
        """The configured base URL, without a trailing slash; it may have a path."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace that applies when a person names none."""
        ...

    @property
    def origin(self) -> str:
        """Where this came from, for sentences: ``context 'prod' of ~/.kube/config``."""
        ...

    @property
    def standing(self) -> Grant | None:
        """The grant for every request, if nothing about it ever changes: nobody waits for it."""
        ...

    async def grant(self) -> Grant:
        """Raises ``ConfigError`` when the credentials cannot be had."""
        ...

    def refused(self, grant: Grant) -> None:
        """The server answered 401 to this grant, or could not be trusted under it: whatever was
        kept for it must be fetched anew."""
        ...


class GivenAccess:
    """Credentials that were handed over and never change."""

    namespace = "default"

    def __init__(self, server: str, grant: Grant, *, origin: str = "given credentials") -> None:
        self.server = server
        self.origin = origin
        self.standing = grant

    async def grant(self) -> Grant:
        return self.standing

    def refused(self, grant: Grant) -> None:
        """There is nothing to fetch anew."""
