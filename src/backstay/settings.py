"""Settings: what a controller is told when it starts. Flags and files become these, once."""

import msgspec

from backstay.kube.lease import LeaseTimes
from backstay.model.policy import Times


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``identity`` must be unique to the process; an address of "" serves nothing.

    ``recorder`` is the flight recorder's directory; without one nothing is recorded to disk.
    """

    identity: str
    namespace: str = "backstay-system"
    lease: str = "backstay-controller"
    lease_times: LeaseTimes = LeaseTimes()
    times: Times = Times()
    poll_leases: float = 2.5
    host: str = ""
    port: int = 8080
    recorder: str = ""
