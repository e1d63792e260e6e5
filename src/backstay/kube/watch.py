"""Watching, as a state machine without I/O: what to ask the API for next.

::

    Begin ──▶ Paging ─────┐
      │        │ ▲ more   │ last page
      │        └─┘        ▼
      └─────▶ Streaming ▶ Watching ◀──▶ Resuming
      ▲                     │              │
      └─────────────────────┴──────────────┘ 410 Gone, or an answer that makes no sense

``step(state, happening) -> Next`` is the whole of it; ``reflector.py`` performs what the state
says and reports what happened. Rules:

* The version to resume from only ever comes from the server: a page, an event or a bookmark.
* 410 means that what we hold cannot be brought up to date: begin again, with a full picture.
* A watch that failed, or brought nothing, is not resumed before the API was asked where it
  stands. One that was restored from a backup keeps silent about versions that it has not reached
  again: to wait for it to speak would be to stay blind.
* A server that refuses the streaming list is asked for pages from then on. So is one that
  accepts it but does not get to its end: pages can be taken up where they stopped.
* No failure is final. What cannot succeed soon (403, a kind that is not installed) is tried
  again at a slow pace, because permissions and CRDs appear while we run.
* A watch that ends the moment it began is a failure and not a resumption.
"""

from dataclasses import dataclass
from enum import Enum

from backstay.kube import errors


@dataclass(frozen=True)
class Begin:
    """Nothing is known, or nothing that can be brought up to date."""

    streaming: bool = True


@dataclass(frozen=True)
class Paging:
    """Reading a full picture, page by page; ``token`` continues, None is the first page."""

    token: str | None = None


@dataclass(frozen=True)
class Streaming:
    """Reading a full picture as initial events of a watch."""


@dataclass(frozen=True)
class Watching:
    """The picture is complete; changes after ``version`` are on their way."""

    version: str
    streaming: bool = True


@dataclass(frozen=True)
class Resuming:
    """The watch came to nothing. Does the API stand at ``version`` or later at all?"""

    version: str
    streaming: bool = True


State = Begin | Paging | Streaming | Watching | Resuming


@dataclass(frozen=True)
class Started:
    """The shell is about to carry out ``Begin``."""


@dataclass(frozen=True)
class PageRead:
    """A page came; no ``token`` means that it was the last."""

    version: str
    token: str | None


@dataclass(frozen=True)
class PictureComplete:
    """The bookmark that ends the initial events came."""

    version: str


@dataclass(frozen=True)
class Advanced:
    """An event or a bookmark came."""

    version: str


@dataclass(frozen=True)
class Ended:
    """The stream ended without a failure; ``productive`` if it lasted and brought something."""

    productive: bool


@dataclass(frozen=True)
class Failed:
    """A call or a stream failed, or went back in time."""

    error: errors.KubeError


Happening = Started | PageRead | PictureComplete | Advanced | Ended | Failed


class Wait(Enum):
    """How long to wait before carrying out the next state."""

    NOT = "not"
    BACKOFF = "backoff"
    LONG = "long"


@dataclass(frozen=True)
class Next:
    """What to do next, and how long to wait before it; the server's own wish counts too."""

    state: State
    wait: Wait = Wait.NOT
    at_least: float = 0.0


def step(state: State, happening: Happening) -> Next:
    """See the module. Total: any happening in any state leads somewhere."""
    match state, happening:
        case Begin(streaming), Started():
            return Next(Streaming() if streaming else Paging())
        case Paging(), PageRead(version, None):
            return Next(Watching(version, streaming=False))
        case Paging(token), PageRead(_, following) if following != token:
            return Next(Paging(following))
        case Streaming(), PictureComplete(version):
            return Next(Watching(version))
        case Watching(_, streaming), Advanced(version):
            return Next(Watching(version, streaming))
        case Watching(version, streaming), Ended(productive):
            doubtful = Next(Resuming(version, streaming), Wait.BACKOFF)
            return Next(state) if productive else doubtful
        case Resuming(version, streaming), PageRead():
            return Next(Watching(version, streaming))
        case Streaming(), Failed(error):
            return _after_streaming(error)
        case _, Failed(error):
            return _after(state, error)
        case _:
            return Next(Begin(_streams(state)), Wait.BACKOFF)


def _after(state: State, error: errors.KubeError) -> Next:
    at_least = error.retry_after or 0.0
    if isinstance(error, errors.Gone | errors.Undecodable | errors.BadRequest | errors.Invalid):
        # To go on would bring the same answer again: only a new picture can help.
        return Next(Begin(_streams(state)), Wait.BACKOFF, at_least)
    if isinstance(state, Watching):
        state = Resuming(state.version, state.streaming)
    # A 401 makes the client fetch its identity anew, so the next attempt is not the same again.
    soon = isinstance(error, errors.Retryable | errors.Unauthorized)
    return Next(state, Wait.BACKOFF if soon else Wait.LONG, at_least)


def _after_streaming(error: errors.KubeError) -> Next:
    at_least = error.retry_after or 0.0
    if isinstance(error, errors.BadRequest | errors.Invalid):
        return Next(Begin(streaming=False))
    if isinstance(error, errors.Unreachable | errors.TooManyRequests | errors.ServiceUnavailable):
        # It was not even begun, which says nothing against it.
        return Next(Begin(), Wait.BACKOFF, at_least)
    if isinstance(error, errors.Retryable | errors.Undecodable):
        return Next(Begin(streaming=False), Wait.BACKOFF, at_least)
    soon = isinstance(error, errors.Gone | errors.Unauthorized)
    return Next(Begin(), Wait.BACKOFF if soon else Wait.LONG, at_least)


def _streams(state: State) -> bool:
    """Whether to stream the next picture. A stream that stopped half-way has had its chance."""
    match state:
        case Begin(streaming) | Watching(_, streaming) | Resuming(_, streaming):
            return streaming
        case _:
            return False
