"""A BMC: the small computer in a server by which its power is switched, as a Redfish service.

It is a machine of its own. It answers while its server is off, hangs or is cut off, knows nothing
of what runs there, and takes seconds for what it does: meanwhile the server says that it is
``PoweringOff``, and runs. What it is asked for while it switches is refused, except that a server
which is about to come up can be switched off at once.

Real ones differ, and fail in ways of their own. ``Build`` is how one is made; ``Trouble`` is what
is wrong with it for a while. An ``Onlooker`` is told of every reading that was given, of every
request to switch in the moment in which it lands, and of every time that the power really goes.

``serving`` is for whoever wants to talk to one over a socket of this machine, or in memory.
"""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from backstay.seam.serve import Answer, Inbound, Serve, ServerTls

ROOT = "/redfish/v1"
USER, PASSWORD = "backstay", "only-power"

_SYSTEMS = f"{ROOT}/Systems"
_RESET = "#ComputerSystem.Reset"
_REALM = 'Basic realm="Redfish"'

Json = dict[str, Any]


class PowerState(StrEnum):
    """In Redfish's words."""

    ON = "On"
    OFF = "Off"
    POWERING_ON = "PoweringOn"
    POWERING_OFF = "PoweringOff"


class Reset(StrEnum):
    """What it can be asked for; of all else that real ones can do, it does nothing."""

    OFF = "ForceOff"
    ON = "On"


class Trouble(StrEnum):
    """What is wrong with a BMC, until it is ``well``."""

    SILENT = "silent"
    """It takes connections, and answers nothing."""
    SLOW = "slow"
    """What it is asked for it does at once, and answers ``seconds`` later."""
    LOSES_ANSWERS = "loses-answers"
    """It switches as it is told to, and says nothing."""
    HOLDS_UP = "holds-up"
    """The next request to switch reaches it ``seconds`` late, whoever waits for it."""
    REFUSES = "refuses"
    """It knows nobody any more: somebody has set another password."""
    FAILS = "fails"
    """It answers that it has failed."""
    STUCK = "stuck"
    """It accepts what it is asked for, and does nothing."""
    LIES = "lies"
    """It says that its server is off, whatever is so, and does nothing."""
    WELL = "well"


@dataclass(frozen=True)
class Build:
    """``repeats_are_errors``: to ask for what is so already is refused. ``takes`` is how long it
    takes to switch, in seconds; ``systems`` is what it lists, its own first."""

    repeats_are_errors: bool = False
    takes: float = 3.0
    systems: tuple[str, ...] = ("1",)


class Server(Protocol):
    """What it switches."""

    @property
    def is_on(self) -> bool: ...

    def switch_off(self) -> None: ...

    def switch_on(self) -> None: ...


class Onlooker(Protocol):
    """See the module. ``peer`` is whoever has asked."""

    def read(self, peer: str, state: PowerState) -> None: ...

    def asked(self, peer: str, reset: str, *, accepted: bool) -> None: ...

    def switched(self, *, on: bool, by: str) -> None: ...


class Nobody:
    """An ``Onlooker`` who does not care."""

    def read(self, peer: str, state: PowerState) -> None: ...

    def asked(self, peer: str, reset: str, *, accepted: bool) -> None: ...

    def switched(self, *, on: bool, by: str) -> None: ...


@dataclass
class Box:
    """A ``Server`` that is on or off, and nothing else."""

    is_on: bool = True

    def switch_off(self) -> None:
        self.is_on = False

    def switch_on(self) -> None:
        self.is_on = True


@dataclass
class Bmc:
    """See the module. ``uuid`` is what it says that its server is called."""

    server: Server
    uuid: str
    build: Build = field(default_factory=Build)
    onlooker: Onlooker = field(default_factory=Nobody)
    password: str = PASSWORD
    trouble: Trouble = Trouble.WELL
    seconds: float = 0.0
    """How long what is slow, or held up, takes."""
    _under_way: PowerState | None = None
    _done: asyncio.TimerHandle | None = None

    def befall(self, trouble: Trouble, seconds: float = 0.0) -> None:
        self.trouble, self.seconds = trouble, seconds

    @property
    def state(self) -> PowerState:
        """What is so."""
        if self._under_way is not None:
            return self._under_way
        return PowerState.ON if self.server.is_on else PowerState.OFF

    @property
    def shown(self) -> PowerState:
        """What it says."""
        return PowerState.OFF if self.trouble is Trouble.LIES else self.state

    # Switching

    def switch(self, reset: Reset, *, by: str) -> bool:
        """Begins with it; whether it was accepted. By a request, or by a hand at its console."""
        goal = PowerState.ON if reset is Reset.ON else PowerState.OFF
        way = PowerState.POWERING_ON if reset is Reset.ON else PowerState.POWERING_OFF
        if self.state in (goal, way):
            return not self.build.repeats_are_errors
        if self.state is PowerState.POWERING_OFF:
            return False
        if self.trouble not in (Trouble.STUCK, Trouble.LIES):
            self._begin(way, by)
        return True

    def _begin(self, way: PowerState, by: str) -> None:
        if self._done is not None:
            self._done.cancel()
        self._under_way = way
        loop = asyncio.get_running_loop()
        # In no process: current flows, or does not, whatever becomes of who has asked for it.
        self._done = loop.call_later(self.build.takes, self._end, way, by, context=Context())

    def _end(self, way: PowerState, by: str) -> None:
        self._under_way = self._done = None
        on = way is PowerState.POWERING_ON
        if on is self.server.is_on:
            # Its power came or went by itself meanwhile.
            return
        if on:
            self.server.switch_on()
        else:
            self.server.switch_off()
        self.onlooker.switched(on=on, by=by)

    # Answering

    async def handle(self, inbound: Inbound) -> Answer:
        if self.trouble is Trouble.SILENT:
            await asyncio.Event().wait()
        if self.trouble is Trouble.FAILS:
            return _error(500, "InternalError", "The service failed.")
        if inbound.path.rstrip("/") == ROOT:
            return _json(_root())
        if self.trouble is Trouble.REFUSES or not self._knows(inbound):
            refusal = _error(401, "NoValidSession", "There is no valid session.")
            headers = {**refusal.headers, "WWW-Authenticate": _REALM}
            return Answer(status=401, headers=headers, body=refusal.body)
        if inbound.method == "POST":
            return await self._post(inbound)
        answer = self._get(inbound)
        if self.trouble is Trouble.SLOW:
            await asyncio.sleep(self.seconds)
        return answer

    def _knows(self, inbound: Inbound) -> bool:
        secret = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return inbound.headers.get("authorization") == f"Basic {secret}"

    def _get(self, inbound: Inbound) -> Answer:
        path = inbound.path.rstrip("/")
        if inbound.method != "GET":
            return _error(405, "OperationNotAllowed", f"{inbound.method} is not allowed.")
        if path == _SYSTEMS:
            return _json(_collection(self.build.systems))
        for name in self.build.systems:
            if path == f"{_SYSTEMS}/{name}":
                shown = self.shown
                self.onlooker.read(inbound.peer, shown)
                return _json(_system(name, self._uuid_of(name), shown))
        return _error(404, "ResourceMissingAtURI", f"There is nothing at {path}.")

    async def _post(self, inbound: Inbound) -> Answer:
        if inbound.path != _target(self.build.systems[0]):
            return _error(404, "ResourceMissingAtURI", f"There is nothing at {inbound.path}.")
        wanted = _reset_in(inbound)
        if self.trouble is Trouble.HOLDS_UP:
            seconds = self.seconds
            self.befall(Trouble.WELL)
            await asyncio.sleep(seconds)
        if wanted not in map(str, Reset):
            self.onlooker.asked(inbound.peer, wanted, accepted=False)
            return _error(400, "ActionParameterNotSupported", f"{wanted} is not supported.")
        accepted = self.switch(Reset(wanted), by=inbound.peer)
        self.onlooker.asked(inbound.peer, wanted, accepted=accepted)
        if self.trouble is Trouble.SLOW:
            await asyncio.sleep(self.seconds)
        if self.trouble is Trouble.LOSES_ANSWERS:
            await asyncio.Event().wait()
        if not accepted:
            return _error(409, "ResourceInUse", "The server is in a state that does not allow it.")
        return Answer(status=204)

    def _uuid_of(self, system: str) -> str:
        if system == self.build.systems[0]:
            return self.uuid
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.uuid}/{system}"))


def swapped(identity: str) -> str:
    """As firmware shows it that swaps the bytes of the first three fields."""
    return str(uuid.UUID(bytes=uuid.UUID(identity).bytes_le))


@asynccontextmanager
async def serving(
    serve: Serve,
    bmc: Bmc,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ServerTls | None = None,
) -> AsyncIterator[str]:
    """The address of one that answers until the end of the block."""
    listener = await serve.listen(bmc.handle, host=host, port=port, tls=tls)
    try:
        yield listener.url
    finally:
        await listener.close()


def _reset_in(inbound: Inbound) -> str:
    try:
        body = msgspec.json.decode(inbound.body or b"{}")
    except msgspec.DecodeError:
        return ""
    return str(body.get("ResetType", "")) if isinstance(body, dict) else ""


def _target(system: str) -> str:
    return f"{_SYSTEMS}/{system}/Actions/ComputerSystem.Reset"


def _root() -> Json:
    return {
        "@odata.id": f"{ROOT}/",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.15.0",
        "Systems": {"@odata.id": _SYSTEMS},
    }


def _collection(systems: tuple[str, ...]) -> Json:
    return {
        "@odata.id": _SYSTEMS,
        "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
        "Name": "Computer System Collection",
        "Members": [{"@odata.id": f"{_SYSTEMS}/{name}"} for name in systems],
        "Members@odata.count": len(systems),
    }


def _system(name: str, identity: str, state: PowerState) -> Json:
    reset = {
        "target": _target(name),
        "ResetType@Redfish.AllowableValues": [str(each) for each in Reset],
    }
    return {
        "@odata.id": f"{_SYSTEMS}/{name}",
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "Id": name,
        "Name": "System",
        "SystemType": "Physical",
        **({"UUID": identity} if identity else {}),
        "PowerState": state,
        "Status": {"State": "Enabled", "Health": "OK"},
        "Actions": {_RESET: reset},
    }


def _json(value: Json, status: int = 200) -> Answer:
    headers = {"Content-Type": "application/json", "OData-Version": "4.0"}
    return Answer(status=status, headers=headers, body=msgspec.json.encode(value))


def _error(status: int, code: str, message: str) -> Answer:
    told = {"MessageId": f"Base.1.13.{code}", "Message": message}
    error = {"code": "Base.1.13.GeneralError", "message": message}
    return _json({"error": {**error, "@Message.ExtendedInfo": [told]}}, status)
