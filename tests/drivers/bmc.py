"""A BMC that speaks Redfish as far as we listen, with the faults that BMCs have."""

import base64
from typing import Any

import msgspec

from backstay.seam.serve import Answer, Inbound

Json = dict[str, Any]

USER, PASSWORD = "backstay", "t0p-s3cret"
UUID = "4c4c4544-0042-3010-8051-b4c04f4a3132"
SYSTEM = "/redfish/v1/Systems/1"
TARGET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


class Bmc:
    """``asked`` are the reset types that it was asked for."""

    def __init__(self) -> None:
        self.state: str | None = "On"
        self.uuid: str | None = UUID
        self.members = [SYSTEM]
        self.target: str | None = TARGET
        self.offers: list[str] | None = ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]
        self.password = PASSWORD
        self.asked: list[str] = []
        self.obeys = True
        self.refuses_what_is_so = False
        self.fails_with = 0
        self.body: bytes | None = None
        self.requests = 0

    async def handle(self, inbound: Inbound) -> Answer:
        self.requests += 1
        token = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        if inbound.headers.get("authorization") != f"Basic {token}":
            return Answer(status=401)
        if self.body is not None:
            return Answer(status=200, body=self.body)
        if inbound.method == "POST" and inbound.path == (self.target or TARGET):
            if inbound.headers.get("content-type") != "application/json":
                return Answer(status=415)
            return self._reset(msgspec.json.decode(inbound.body)["ResetType"])
        if inbound.path == "/redfish/v1/Systems":
            return _json({"Members": [{"@odata.id": each} for each in self.members]})
        if inbound.path in self.members:
            return _json(self._system())
        return Answer(status=404)

    def _reset(self, kind: str) -> Answer:
        wanted = "Off" if kind == "ForceOff" else "On"
        self.asked.append(kind)
        if self.state == wanted and self.refuses_what_is_so:
            return Answer(status=409)
        if self.fails_with:
            return Answer(status=self.fails_with, body=b'{"error": "the door is locked"}')
        if self.obeys:
            self.state = wanted
        return Answer(status=204)

    def _system(self) -> Json:
        reset: Json = {} if self.target is None else {"target": self.target}
        if self.offers is not None:
            reset["ResetType@Redfish.AllowableValues"] = self.offers
        return {
            "@odata.id": SYSTEM,
            "UUID": self.uuid,
            "PowerState": self.state,
            "Actions": {"#ComputerSystem.Reset": reset},
        }


def _json(body: Json) -> Answer:
    return Answer(
        status=200, headers={"Content-Type": "application/json"}, body=msgspec.json.encode(body)
    )
