"""ExecPlugin: a login whose credentials are handed out by a program (client.authentication.k8s.io).

* The program runs once for all who wait for it. What it hands out is kept until it expires,
  judged by two clocks: the monotonic one cannot be turned back, and the time of day goes on
  while the machine sleeps. The next credential is fetched a little early; should that fail, the
  one in hand is used to its end.
* A program that fails is left alone for a moment, and so is one whose credentials the server
  refuses again and again: a broken plugin does not run for each request.
* What it prints is a secret as a whole. A sentence may cite the last line of its stderr, never
  its stdout.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec

from backstay.kube.credentials import Identity, bearer
from backstay.kube.errors import ConfigError
from backstay.kube.kubeconfig import ExecConfig
from backstay.kube.limits import Backoff
from backstay.kube.pem import Unusable, key_pair
from backstay.seam import Seams
from backstay.seam.errors import ExecNotFound, ExecTimedOut
from backstay.seam.exec import Command, Completed

TIMEOUT = 60.0
# Somebody may have to find a phone or a smart card.
TIMEOUT_WITH_PERSON = 300.0

_GROUP = "client.authentication.k8s.io"
_V1 = f"{_GROUP}/v1"
_V1BETA1 = f"{_GROUP}/v1beta1"
_EARLY_AT_MOST = 60.0
_EARLY_SHARE = 0.1
_REFUSALS_APART = 10.0
_CITE_AT_MOST = 300
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

_logger = logging.getLogger(__name__)


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What a plugin that asks for it is told about the cluster. ``bytes`` travel as base64."""

    server: str
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    certificate_authority_data: bytes | None = None
    proxy_url: str | None = None
    config: Any = None


class _Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    interactive: bool
    cluster: ClusterInfo | None = None


class _Question(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    spec: _Spec
    kind: str = "ExecCredential"


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Answer).decode


@dataclass(frozen=True)
class _Credential:
    """An identity and when it ends, on both clocks (``None``: when the server says so)."""

    identity: Identity
    ends: datetime | None = None
    ends_monotonic: float = 0.0
    early: float = 0.0

    def left(self, *, wall: datetime, monotonic: float) -> float:
        if self.ends is None:
            return float("inf")
        return min((self.ends - wall).total_seconds(), self.ends_monotonic - monotonic)


class ExecPlugin:
    """See the module. ``who`` is the user that it is for: ``user 'x' in ~/.kube/config``."""

    def __init__(
        self,
        config: ExecConfig,
        *,
        seams: Seams,
        environ: Mapping[str, str],
        terminal: bool,
        cluster: Callable[[], Awaitable[ClusterInfo]],
        who: str,
    ) -> None:
        self._what = f"The credential plugin {config.command!r} of {who}"
        self._interactive = _checked(config, terminal, self._what)
        self._config = config
        self._seams = seams
        self._environ = {**environ, **{variable.name: variable.value for variable in config.env}}
        self._cluster = cluster
        self._credential: _Credential | None = None
        self._failure: str | None = None
        self._backoff = Backoff(base=1.0, cap=30.0, rng=seams.rng)
        self._run_again_at = 0.0
        self._heed_refusals_from = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def identity(self) -> Identity:
        if (fresh := self._fresh()) is not None:
            return fresh
        in_hand = self._usable()
        if in_hand is not None and (self._one_at_a_time.locked() or self._waits()):
            return in_hand
        async with self._one_at_a_time:
            if (fresh := self._fresh()) is not None:
                return fresh
            if not self._waits():
                await self._fetch()
            in_hand = self._usable()
            if in_hand is None:
                raise ConfigError(self._failure)
            return in_hand

    def refused(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._heed_refusals_from:
            self._credential = None
            self._heed_refusals_from = now + _REFUSALS_APART

    def _left(self) -> float:
        if self._credential is None:
            return 0.0
        return self._credential.left(
            wall=self._seams.wall.now(), monotonic=asyncio.get_running_loop().time()
        )

    def _usable(self) -> Identity | None:
        return self._credential.identity if self._credential and self._left() > 0 else None

    def _fresh(self) -> Identity | None:
        if self._credential is None or self._left() <= self._credential.early:
            return None
        return self._credential.identity

    def _waits(self) -> bool:
        """Whether it failed so recently that it is not asked again yet."""
        return self._failure is not None and (
            asyncio.get_running_loop().time() < self._run_again_at
        )

    async def _fetch(self) -> None:
        try:
            self._credential = self._accepted(await self._run())
        except _Failed as error:
            sentence = f"{self._what} {error}."
            if self._failure is None and self._usable() is not None:
                _logger.warning("%s The credential in hand is used until it expires.", sentence)
            self._failure = sentence
            self._run_again_at = asyncio.get_running_loop().time() + self._backoff.next()
        else:
            self._failure = None
            self._backoff.reset()

    async def _run(self) -> Completed:
        config = self._config
        cluster = await self._cluster() if config.provide_cluster_info else None
        question = _Question(config.api_version, _Spec(self._interactive, cluster))
        command = Command(
            argv=(config.command, *config.args),
            env={**self._environ, "KUBERNETES_EXEC_INFO": _encode(question).decode()},
            timeout=TIMEOUT_WITH_PERSON if self._interactive else TIMEOUT,
            terminal=self._interactive,
        )
        try:
            return await self._seams.exec.run(command)
        except ExecNotFound as error:
            hint = _one_line(config.install_hint) or "install it, or correct the command"
            raise _Failed(f"does not run: {error}; {hint.removesuffix('.')}") from None
        except ExecTimedOut:
            raise _Failed(f"did not end within {command.timeout:g} s: run it by hand") from None

    def _accepted(self, completed: Completed) -> _Credential:
        if completed.code != 0:
            lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
            silent = "see its own words above" if self._interactive else "it said nothing on stderr"
            said = _one_line(lines[-1]) if lines else silent
            raise _Failed(f"ended with code {completed.code}: {said.removesuffix('.')}")
        try:
            answer = _decode(completed.stdout)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _Failed(f"did not print an ExecCredential: {_where(error)}") from None
        if (answer.api_version, answer.kind) != (self._config.api_version, "ExecCredential"):
            raise _Failed(
                f"did not print an ExecCredential of {self._config.api_version}: correct the "
                "apiVersion in the kubeconfig, or update the plugin"
            )
        status = answer.status or _Status()
        try:
            return self._credential_until(status.expiration_timestamp, _identity(status))
        except Unusable as error:
            raise _Failed(f"printed {error}") from None

    def _credential_until(self, ends: datetime | None, identity: Identity) -> _Credential:
        if ends is None:
            return _Credential(identity)
        lasts = (ends - self._seams.wall.now()).total_seconds()
        if lasts <= 0:
            raise _Failed(
                f"printed a credential that expired at {ends.isoformat()}: log in again, and check "
                "this machine's clock"
            )
        return _Credential(
            identity,
            ends=ends,
            ends_monotonic=asyncio.get_running_loop().time() + lasts,
            early=min(_EARLY_AT_MOST, lasts * _EARLY_SHARE),
        )


class _Failed(Exception):
    """The rest of a sentence that begins with the plugin's name."""


def _identity(status: _Status) -> Identity:
    token, cert, key = status.token, status.client_certificate_data, status.client_key_data
    if bool(cert) != bool(key):
        raise Unusable("a client certificate without its key, or a key without its certificate")
    if not token and not cert:
        raise Unusable("neither a token nor a client certificate")
    return Identity(
        authorization=bearer(token.encode()) if token else None,
        pair=key_pair(cert.encode(), key.encode()) if cert and key else None,
    )


def _checked(config: ExecConfig, terminal: bool, what: str) -> bool:
    """Whether the plugin may talk to a person. Raises ``ConfigError`` if it can never run."""
    if not config.command:
        raise ConfigError(f"{what} has no command: name the program to run.")
    if config.api_version not in (_V1, _V1BETA1):
        raise ConfigError(
            f"{what} uses apiVersion {config.api_version!r}: update the plugin and its entry to "
            f"{_V1} or {_V1BETA1}."
        )
    if any(not variable.name or "=" in variable.name for variable in config.env):
        raise ConfigError(f"{what} sets an environment variable that has no valid name.")
    mode = config.interactive_mode
    if not mode and config.api_version == _V1BETA1:
        mode = "IfAvailable"
    if mode not in ("Never", "IfAvailable", "Always"):
        raise ConfigError(f"{what} needs interactiveMode: Never, IfAvailable or Always.")
    if mode == "Always" and not terminal:
        raise ConfigError(
            f"{what} wants to talk to a person (interactiveMode: Always), and there is no "
            "terminal: use a plugin that needs none."
        )
    return terminal and mode != "Never"


def _one_line(text: str) -> str:
    plain = _COLOUR.sub("", text)
    printable = "".join(letter if letter.isprintable() else " " for letter in plain)
    return " ".join(printable.split())[:_CITE_AT_MOST]


def _where(error: Exception) -> str:
    """Where the answer is wrong, as msgspec puts it: a path and types, never a value."""
    return str(error) if isinstance(error, msgspec.ValidationError) else "it is not JSON"
