"""Extras: the parts of a controller that are there only if its settings ask for them."""

from backstay import __version__
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.stream import Promotions
from backstay.drivers.openstack import OpenStack
from backstay.drivers.power import PowerDevices
from backstay.drivers.provider import Provider
from backstay.drivers.redfish import Redfish
from backstay.kube.client import KubeClient
from backstay.kube.events import EventRecorder
from backstay.record.metrics import Metrics
from backstay.record.notify import Notifier
from backstay.record.piraeus import COMPONENT
from backstay.record.recorder import FlightRecorder
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sources.linstor import LinstorSource
from backstay.sources.nodes import NodeSource
from backstay.sources.provider import ProviderSource
from backstay.sources.testimony import Source

PROGRAM = f"backstay {__version__}"


def piraeus_events_of(settings: Settings, seams: Seams, client: KubeClient) -> EventRecorder | None:
    if settings.linstor is None:
        return None
    return EventRecorder(
        client, component=COMPONENT, instance=settings.identity, wall=seams.wall, rng=seams.rng
    )


def provider_of(settings: Settings, seams: Seams) -> Provider | None:
    if not settings.openstack:
        return None
    return OpenStack(seams.transport, seams.files, settings.openstack)


def devices_of(settings: Settings, seams: Seams) -> PowerDevices | None:
    if not settings.redfish:
        return None
    return Redfish(seams.transport, seams.files, settings.redfish)


def linstor_of(
    settings: Settings, seams: Seams, nodes: NodeSource, made_of: type[LinstorSource]
) -> LinstorSource | None:
    if settings.linstor is None:
        return None
    linstor = Linstor(seams.transport, seams.files, settings.linstor)
    return made_of(
        linstor,
        Promotions(linstor, rng=seams.rng),
        nodes,
        terms=settings.linstor_terms,
        interval=settings.poll_leases,
        patience=settings.times.fresh,
    )


def sources_of(
    provider: Provider | None, client: KubeClient, nodes: NodeSource, *, interval: float
) -> tuple[Source, ...]:
    return () if provider is None else (ProviderSource(client, nodes, provider, interval=interval),)


def recorder_of(settings: Settings, seams: Seams) -> FlightRecorder | None:
    if not settings.recorder:
        return None
    return FlightRecorder(
        seams.files,
        settings.recorder,
        program=PROGRAM,
        wall=seams.wall,
        rng=seams.rng,
    )


def notifier_of(settings: Settings, seams: Seams, metrics: Metrics) -> Notifier | None:
    if settings.webhook is None:
        return None
    return Notifier(
        seams.transport,
        seams.files,
        settings.webhook,
        wall=seams.wall,
        rng=seams.rng,
        metrics=metrics,
    )
