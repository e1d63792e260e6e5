"""Settings: what a controller is told when it starts. Flags and files become these, once."""

import hashlib
import ipaddress
import re

import msgspec

from backstay.drivers.linstor.access import Access
from backstay.kube.lease import LeaseTimes
from backstay.model.policy import PIRAEUS, OptIn, Times
from backstay.record.notify import Webhook
from backstay.sources.linstor import LinstorTerms


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``identity`` must be unique to the process; an address of "" serves nothing.

    ``recorder`` is the flight recorder's directory; without one nothing is recorded to disk.
    ``webhook`` is whom else to tell. ``node_name`` is the node that it runs on: without it, what it
    cannot reach proves nothing. ``knock`` is how often a silent node is knocked at.
    ``openstack`` is a directory with the credential by which Nova is asked whether a node's machine
    is off; without one nobody is asked. ``redfish`` is a directory with the credentials by which
    the BMCs of nodes are asked, and switched. ``linstor`` is where LINSTOR's controllers are;
    without it DRBD is not asked whom it has shut out. ``opt_in`` says which pods are protected by
    labels that are not ours.
    """

    identity: str
    namespace: str = "backstay-system"
    lease: str = "backstay-controller"
    lease_times: LeaseTimes = LeaseTimes()
    times: Times = Times()
    node_name: str = ""
    poll_leases: float = 2.5
    knock: float = 5.0
    host: str = ""
    port: int = 8080
    recorder: str = ""
    webhook: Webhook | None = None
    openstack: str = ""
    redfish: str = ""
    linstor: Access | None = None
    linstor_terms: LinstorTerms = LinstorTerms()
    opt_in: OptIn = PIRAEUS

    @property
    def fingerprint(self) -> str:
        """Of what all controllers of one cluster should have in common."""
        terms = self.linstor_terms if self.linstor is not None else None
        shared = msgspec.json.encode(
            (self.times, self.lease_times, self.poll_leases, terms, self.opt_in)
        )
        return hashlib.sha256(shared).hexdigest()[:8]

    @property
    def is_reachable(self) -> bool:
        """Whether others than this machine can reach the address: then callers are asked who
        they are. A name could be anybody's, so only addresses and ``localhost`` are trusted."""
        if self.host in ("", "localhost"):
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True


_SIGNED = re.compile(r"\.([0-9a-f]{8})$")


def signed(settings: Settings) -> Settings:
    """The same, with an identity by which others can tell what it was started with. Whoever
    holds the lease shows it there, so that it takes no further object to compare."""
    identity = f"{settings.identity}.{settings.fingerprint}"
    return msgspec.structs.replace(settings, identity=identity)


def disagreement(identity: str, holder: str) -> str:
    """A sentence if both are signed and were started with different settings, else empty."""
    mine, its = _SIGNED.search(identity), _SIGNED.search(holder)
    if mine is None or its is None or mine[1] == its[1]:
        return ""
    return (
        f"{holder} leads with other times than {identity} would: start all controllers of a "
        "cluster with the same flags."
    )
