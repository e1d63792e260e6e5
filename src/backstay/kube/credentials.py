"""Credentials: tokens, certificates and authorities that rotate under a running process.

Whoever mounts them replaces the files; nobody tells us. So a ``Kept`` value

* looks at its files at most once a minute, and at once after the server has refused it;
* believes only what is whole: an empty token, half a certificate or a key without its
  certificate is not a new value but a file in the middle of being written;
* stays with the last good value meanwhile, says so once, and gives it up only when the server
  refuses it: a file that cannot be read is no reason to stop working;
* never lets a disk that hangs hold up more than one caller, and that one only for a moment.

Values that stand in the configuration itself are kept the same way; they just never change.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from backstay.kube.errors import ConfigError
from backstay.kube.pem import KeyPair, Unusable
from backstay.seam.files import FileInfo, Files

LOOK_EVERY = 60.0
LOOK_TIMEOUT = 5.0
MAX_SIZE = 4 * 1024 * 1024

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Inline(msgspec.Struct, frozen=True):
    """Content that stands in the configuration itself."""

    data: bytes

    def __repr__(self) -> str:
        return "Inline(...)"


class InFile(msgspec.Struct, frozen=True):
    """Content that is in a file of its own."""

    path: str


Source = Inline | InFile


class Kept(Generic[T]):
    """A value made of one or more sources. ``what`` names it in sentences."""

    def __init__(
        self, files: Files, sources: Sequence[Source], made: Callable[..., T], *, what: str
    ) -> None:
        self._files = files
        self._sources = tuple(sources)
        self._made = made
        self._what = what
        self._good: T | None = None
        self._seen: list[FileInfo] = []
        self._look_at = 0.0
        self._refused = False
        self._complained = False
        self._one_at_a_time = asyncio.Lock()

    async def value(self) -> T:
        """The newest good value. Raises ``ConfigError`` if there is none."""
        if self._good is None or self._refused:
            # Nothing to go on with: everybody waits for the one who looks.
            async with self._one_at_a_time:
                if self._good is None or self._refused:
                    await self._look()
        elif asyncio.get_running_loop().time() >= self._look_at:
            await self._look()
        assert self._good is not None
        return self._good

    def look_again(self) -> None:
        """Something speaks against the value, but not enough to give it up."""
        self._look_at = 0.0
        self._seen = []

    def refused(self) -> None:
        """The server did not accept the value: only what the files say now counts."""
        self._refused = True

    async def _look(self) -> None:
        # Set before the first await: callers who come meanwhile go on with what is there.
        self._look_at = asyncio.get_running_loop().time() + LOOK_EVERY
        was_refused = self._refused
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                seen = [await self._files.info(path) for path in self._paths]
                if any(info.size > MAX_SIZE for info in seen):
                    raise Unusable("more bytes than any credential has")
                if self._good is None or was_refused or seen != self._seen:
                    contents = [await self._content(source) for source in self._sources]
                    self._good = self._made(*contents)
                    self._seen = seen
        except (OSError, Unusable) as error:
            self._keep_last_good(error)
        else:
            # A refusal that came while we looked may be about what we found: it still stands.
            self._refused = self._refused and not was_refused
            if self._complained:
                self._complained = False
                _logger.info("%s is good again", self._what)

    def _keep_last_good(self, error: OSError | Unusable) -> None:
        why = f"{self._what} cannot be used: {self._reason(error)}"
        if self._good is None or self._refused:
            self._good = None
            raise ConfigError(f"{why}.") from None
        if not self._complained:
            self._complained = True
            _logger.warning("%s; the last good one stays in use", why)

    def _reason(self, error: OSError | Unusable) -> str:
        where = " and ".join(self._paths)
        if isinstance(error, Unusable):
            return f"{where} contains {error}" if where else f"it contains {error}"
        if isinstance(error, FileNotFoundError):
            return f"there is no file {error.filename or where}"
        if isinstance(error, TimeoutError):
            return f"reading {where} took longer than {LOOK_TIMEOUT:g} s"
        return f"reading {error.filename or where} failed ({error.strerror or error})"

    @property
    def _paths(self) -> list[str]:
        return [source.path for source in self._sources if isinstance(source, InFile)]

    async def _content(self, source: Source) -> bytes:
        return source.data if isinstance(source, Inline) else await self._files.read(source.path)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are to the server, now. Neither part is needed by a server that asks nothing."""

    authorization: str | None = None
    pair: KeyPair | None = None

    def __repr__(self) -> str:
        return "Identity(...)"


class Login(Protocol):
    """A way to prove who we are."""

    async def identity(self) -> Identity:
        """Raises ``ConfigError`` when the credentials cannot be had."""
        ...

    def refused(self) -> None:
        """The server did not accept the newest identity."""
        ...


class KeptLogin:
    """A token or password, a client certificate, both or neither."""

    def __init__(
        self, *, authorization: Kept[str] | None = None, pair: Kept[KeyPair] | None = None
    ) -> None:
        self._authorization = authorization
        self._pair = pair

    async def identity(self) -> Identity:
        return Identity(
            authorization=await self._authorization.value() if self._authorization else None,
            pair=await self._pair.value() if self._pair else None,
        )

    def refused(self) -> None:
        for kept in (self._authorization, self._pair):
            if kept is not None:
                kept.refused()


def bearer(token: bytes) -> str:
    """The ``Authorization`` header for a token. Raises ``Unusable``."""
    text = token.strip()
    if not text:
        raise Unusable("an empty token")
    if not all(0x21 <= byte <= 0x7E for byte in text):
        # A line break here would let the content of a file write headers of its own.
        raise Unusable("characters that no token has")
    return f"Bearer {text.decode('ascii')}"


def basic(username: str, password: str) -> str:
    """The ``Authorization`` header for a user name and a password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
