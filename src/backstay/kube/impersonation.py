"""Impersonation: the headers that ask the API server to act as somebody else."""

import re

from backstay.kube.errors import ConfigError
from backstay.kube.kubeconfig import User

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN_IN_NAMES = frozenset(
    b"!#$&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)


def impersonation(user: User, who: str) -> dict[str, str]:
    """The headers for ``user``, which ``who`` names in sentences. Raises ``ConfigError``."""
    if not user.as_user:
        if user.as_uid or user.as_groups or user.as_user_extra:
            raise ConfigError(
                f"{who} sets as-uid, as-groups or as-user-extra without as: name the user to "
                "impersonate."
            )
        return {}
    headers = {"Impersonate-User": user.as_user}
    if user.as_uid:
        headers["Impersonate-Uid"] = user.as_uid
    several = {"Impersonate-Group": user.as_groups}
    for key, values in user.as_user_extra.items():
        several[f"Impersonate-Extra-{_escaped(key)}"] = values
    for name, values in several.items():
        if len(values) > 1:
            # Less than what was asked for would be somebody else, so it is all or nothing.
            raise ConfigError(
                f"{who} impersonates with several values of {name}, and only one can be sent: "
                "leave one."
            )
        if values:
            headers[name] = values[0]
    if any(_CONTROL.search(value) for value in headers.values()):
        raise ConfigError(f"{who} impersonates with a line break or control character: remove it.")
    return headers


def _escaped(key: str) -> str:
    """Keys are often domain names with a path; a header's name cannot have the slash."""
    return "".join(
        chr(byte) if byte in _PLAIN_IN_NAMES else f"%{byte:02X}" for byte in key.encode()
    )
