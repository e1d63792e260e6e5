"""Credentials: what one request to a controller needs in order to be accepted, as of now.

Tokens, certificates and authorities are files that somebody replaces while we run. They are kept
as ``kube.credentials`` keeps those for Kubernetes: looked at once a minute, at once when a
controller refuses what we have, and the last good one stays in use until then.
"""

import msgspec

from backstay.drivers.linstor.access import CERTIFICATE, KEY, ROOT_CA, TOKEN_FILE, Access
from backstay.drivers.linstor.errors import Misconfigured
from backstay.kube.access import Grant
from backstay.kube.credentials import InFile, Kept, KeptLogin, Source, basic, bearer
from backstay.kube.errors import ConfigError
from backstay.kube.pem import Unusable, key_pair, trusted_authorities
from backstay.seam.files import Files
from backstay.seam.transport import Tls


class _TokenFile(msgspec.Struct, frozen=True):
    token: str


class Credentials:
    """Those of one ``Access``."""

    def __init__(self, files: Files, access: Access) -> None:
        self._authorities: Kept[bytes] | None = None
        if access.authority:
            what = _named(ROOT_CA, access.authority)
            self._authorities = Kept(files, [access.authority], trusted_authorities, what=what)
        pair = None
        if access.certificate and access.key:
            what = f"{_named(CERTIFICATE, access.certificate)} with {_named(KEY, access.key)}"
            pair = Kept(files, [access.certificate, access.key], key_pair, what=what)
        self._login = KeptLogin(authorization=_authorization(files, access), pair=pair)
        self._newest: Grant | None = None

    async def grant(self) -> Grant:
        """Raises ``Misconfigured`` when they cannot be had."""
        try:
            authorities = await self._authorities.value() if self._authorities else None
            identity = await self._login.identity()
        except ConfigError as error:
            raise Misconfigured(str(error)) from None
        pair = identity.pair
        self._newest = Grant(
            headers={"Authorization": identity.authorization} if identity.authorization else {},
            tls=Tls(
                ca=authorities, cert=pair.cert if pair else None, key=pair.key if pair else None
            ),
        )
        return self._newest

    async def others_than(self, refused: Grant) -> Grant | None:
        """What there is by now in place of what was refused; None if that is the same."""
        if refused == self._newest:
            self._login.refused()
            if self._authorities:
                self._authorities.look_again()
        newest = await self.grant()
        return newest if newest != refused else None


def _authorization(files: Files, access: Access) -> Kept[str] | None:
    if access.token:
        return Kept(files, [access.token], _bearer, what=TOKEN_FILE)
    if access.username:

        def login(password: bytes) -> str:
            return basic(access.username, password.decode())

        return Kept(files, [access.password], login, what="the login by password")
    return None


def _bearer(data: bytes) -> str:
    """The header for a token file in either of its forms. Raises ``Unusable``."""
    if not data.lstrip().startswith(b"{"):
        return bearer(data)
    try:
        return bearer(msgspec.json.decode(data, type=_TokenFile).token.encode())
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Unusable('JSON without a "token"') from None


def _named(variable: str, source: Source) -> str:
    return f"{variable}_FILE" if isinstance(source, InFile) else variable
