"""Watching, as a state machine without I/O: what to ask the API for next.

::

    Begin ──▶ Paging ──────────────┐ last page
      │         ▲ more pages       ▼
      └─────▶ Streaming ───────▶ Watching ──▶ (resume from the last version)
              (initial events)     │
      ▲                            │ 410 Gone, or an answer that makes no sense
      └────────────────────────────┘

``step(state, happening) -> Next`` is the whole of it; ``reflector.py`` performs what the state
says and reports what happened. Rules:

* The version to resume from only ever comes from the server: a page, an event or a bookmark.
* 410 means that what we hold cannot be brought up to date: begin again, with a full picture.
* A server that refuses the streaming list is asked for pages from then on. So is one that
  accepts it but never gets to its end.
* No failure is final. What cannot succeed soon (403, a kind that is not installed) is tried
  again at the backoff's slow end, because permissions and CRDs appear while we run.
* A watch that ends the moment it began, twice in a row, is a failure and not a resumption.
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


State = Begin | Paging | Streaming | Watching


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
    """The server ended the stream properly; ``productive`` if it brought anything or lasted."""

    productive: bool


@dataclass(frozen=True)
class Failed:
    """A call or a stream failed."""

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
        case Paging(), PageRead(_, token):
            return Next(Paging(token))
        case Streaming(), PictureComplete(version):
            return Next(Watching(version))
        case Watching(_, streaming), Advanced(version) | PictureComplete(version):
            return Next(Watching(version, streaming))
        case Watching(), Ended(productive):
            return Next(state, Wait.NOT if productive else Wait.BACKOFF)
        case _, Failed(error):
            return _after(state, error)
        case _, Ended():
            return Next(Begin(streaming=False), Wait.BACKOFF)
        case _:
            return Next(state)


def _after(state: State, error: errors.KubeError) -> Next:
    at_least = error.retry_after or 0.0
    if isinstance(error, errors.Gone):
        return Next(Begin(_streams(state)), Wait.BACKOFF, at_least)
    if isinstance(state, Streaming):
        return _after_streaming(error, at_least)
    if isinstance(error, errors.Retryable):
        return Next(state, Wait.BACKOFF, at_least)
    if isinstance(error, errors.Undecodable | errors.BadRequest | errors.Invalid):
        # Resuming would bring the same answer again: only a new picture can help.
        return Next(Begin(_streams(state)), Wait.BACKOFF, at_least)
    return Next(state, Wait.LONG, at_least)


def _after_streaming(error: errors.KubeError, at_least: float) -> Next:
    if isinstance(error, errors.BadRequest | errors.Invalid):
        return Next(Begin(streaming=False))
    if isinstance(error, errors.Unreachable | errors.TooManyRequests):
        return Next(Begin(), Wait.BACKOFF, at_least)
    if isinstance(error, errors.Retryable | errors.Undecodable):
        # It broke half-way. Pages can be taken up again where they stopped; a stream cannot.
        return Next(Begin(streaming=False), Wait.BACKOFF, at_least)
    return Next(Begin(), Wait.LONG, at_least)


def _streams(state: State) -> bool:
    return not isinstance(state, Paging) and not (
        isinstance(state, Begin | Watching) and not state.streaming
    )
