"""What went wrong with LINSTOR, as types, by what was learned.

::

    LinstorError
    ├── Misconfigured   what we were given cannot work: nothing was asked
    ├── Unreachable     no answer: nothing was learned
    ├── Refused         an answer, and it was no: a login, a redirect, a failure of the controller
    ├── NotThere        LINSTOR itself says that it knows no such thing
    └── Garbled         an answer that is not LINSTOR's, or cannot be read

``str()`` of each is one sentence that names the controller, or the setting, and no secret. Where
several controllers were asked in vain it tells of each, and is of the type that says most.
"""

from collections.abc import Sequence


class LinstorError(Exception):
    """The root of everything that this package raises on purpose."""


class Misconfigured(LinstorError):
    """A setting or a credential cannot be used; the sentence names it."""


class Unreachable(LinstorError):
    """No controller was heard, in time or at all."""


class Refused(LinstorError):
    """A controller answered with anything but what was asked for."""


class NotThere(LinstorError):
    """LINSTOR knows no such resource."""


class NotServed(LinstorError):
    """LINSTOR does not know the question: it is older than that."""


class Garbled(LinstorError):
    """What came cannot be read as what was asked for."""


_TELLING = (Refused, Garbled, Misconfigured, Unreachable)


def joined(failures: Sequence[LinstorError]) -> LinstorError:
    """One error for the failures of one question at several controllers."""
    if len(failures) == 1:
        return failures[0]
    kind = next(each for each in _TELLING if any(isinstance(f, each) for f in failures))
    # The same words for each controller, a token that cannot be read, say, are said once.
    return kind("; ".join(dict.fromkeys(map(str, failures))))
