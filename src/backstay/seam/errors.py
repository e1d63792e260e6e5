"""What can go wrong between us and the world, by what the caller may do next.

::

    SeamError
    ├── TransportError
    │   ├── NotSent               not one byte of the request left: repeating it is safe
    │   │   ├── ConnectFailed     no route, unknown name, no connection in time
    │   │   │   └── Refused       somebody is there, and takes no connection
    │   │   ├── TlsFailed         the peer could not prove who it is, or refused our proof
    │   │   └── TooLate           ``Request.not_after`` had passed
    │   └── MaybeSent             the peer may have carried it out: find out, do not assume
    │       ├── TimedOut          no answer, or no further bytes, in time
    │       ├── ConnectionLost    reset, closed or cut off in the middle
    │       └── BadAnswer         not HTTP, wrongly encoded, or larger than we accept
    └── ExecError
        ├── ExecNotFound          no such program, or it cannot be executed
        └── ExecTimedOut          it did not end in time and was killed with its children

A caller that retries must distinguish ``NotSent`` from ``MaybeSent``; that is why they are
types and not a flag. File operations raise Python's own ``OSError`` tree, which is already
by cause.
"""


class SeamError(Exception):
    """The root: catching it means "the world did not do what we asked"."""


class TransportError(SeamError):
    """A request or stream that did not end well."""


class NotSent(TransportError):
    """Not one byte of the request left this process."""


class ConnectFailed(NotSent):
    """No connection to the peer could be had."""


class Refused(ConnectFailed):
    """The peer's machine takes no connection there, or took one that is of no use: it is alive, and
    can be reached. Where nobody is heard it is ``ConnectFailed`` and not this."""


class TlsFailed(NotSent):
    """The TLS handshake failed; retrying without a change of trust will not help."""


class TooLate(NotSent):
    """The request's ``not_after`` passed before its first byte could leave."""


class MaybeSent(TransportError):
    """The peer may or may not have acted on the request."""


class TimedOut(MaybeSent):
    """The peer was silent for longer than allowed."""


class ConnectionLost(MaybeSent):
    """The connection ended before the answer did."""


class BadAnswer(MaybeSent):
    """The answer is not HTTP as we accept it."""


class ExecError(SeamError):
    """A program that we started did not do its part."""


class ExecNotFound(ExecError):
    """The program is not there or may not be executed."""


class ExecTimedOut(ExecError):
    """The program was killed, with everything that it had started, because time was up."""
