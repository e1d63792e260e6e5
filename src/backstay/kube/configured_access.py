"""ConfiguredAccess: one cluster and one user, as a configuration names them.

It joins what is fixed (address, proxy, whom to impersonate) with what rotates (the authority that
signs the server's certificate, and the login) into the ``Grant`` of this moment. Over plain HTTP
there is neither TLS nor login: a credential is never sent to somebody who did not prove who they
are. That is what kubectl does, too, and what ``kubectl proxy`` is made for.
"""

from collections.abc import Mapping

from backstay.kube.access import Grant
from backstay.kube.credentials import Kept, Login
from backstay.seam.transport import NO_HEADERS, Tls


class ConfiguredAccess:
    """See ``backstay.kube.access.Access``, which this is one of."""

    standing = None

    def __init__(
        self,
        *,
        server: str,
        namespace: str,
        origin: str,
        login: Login,
        authorities: Kept[bytes] | None = None,
        server_name: str | None = None,
        verify: bool = True,
        proxy: str | None = None,
        impersonation: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        self._server = server
        self._namespace = namespace
        self._origin = origin
        self._login = login
        self._authorities = authorities
        self._server_name = server_name
        self._verify = verify
        self._proxy = proxy
        self._impersonation = impersonation
        self._newest: Grant | None = None

    @property
    def server(self) -> str:
        return self._server

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def origin(self) -> str:
        return self._origin

    async def grant(self) -> Grant:
        if self._server.startswith("http:"):
            return Grant(headers=self._impersonation, proxy=self._proxy)
        authorities = await self._authorities.value() if self._authorities else None
        identity = await self._login.identity()
        headers = dict(self._impersonation)
        if identity.authorization:
            headers["Authorization"] = identity.authorization
        self._newest = Grant(
            headers=headers,
            tls=Tls(
                ca=authorities,
                cert=identity.pair.cert if identity.pair else None,
                key=identity.pair.key if identity.pair else None,
                server_name=self._server_name,
                verify=self._verify,
            ),
            proxy=self._proxy,
        )
        return self._newest

    def refused(self, grant: Grant) -> None:
        # Many requests carry one grant and are refused together. Those that come back after
        # another one was had speak of the old one.
        if grant != self._newest:
            return
        self._login.refused()
        if self._authorities:
            self._authorities.look_again()
