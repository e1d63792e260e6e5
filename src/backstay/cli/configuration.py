"""The cluster's one BackstayConfig: reading it, and changing what was read and nothing newer."""

from collections.abc import Mapping
from datetime import timedelta

import click
import msgspec

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, Config, ConfigRow, config_row
from backstay.cli.consent import is_unknown_kind, our_kinds, own_name
from backstay.cli.session import Session
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.model.labels import COMPONENT, MANAGER
from backstay.model.moments import time_text

NONE: Mapping[str, str] = {}


async def read_config(client: KubeClient) -> ConfigRow | None:
    """None if there is none yet, which means to observe."""
    with our_kinds():
        try:
            return config_row((await client.get(CONFIGS, CONFIG_NAME)).into(Config))
        except errors.NotFound as error:
            if is_unknown_kind(error):
                raise
            return None


async def write_config(
    client: KubeClient,
    known: ConfigRow | None,
    spec: Mapping[str, object],
    *,
    annotations: Mapping[str, str] = NONE,
) -> None:
    """Merges ``spec`` into what is ``known``; a key with None is taken away."""
    try:
        if known is None:
            await _create(client, spec, annotations)
        else:
            meta = {"resourceVersion": known.version, "uid": known.uid, "annotations": annotations}
            patch = {"metadata": meta, "spec": spec}
            await client.merge_patch(CONFIGS, CONFIG_NAME, patch, manager=MANAGER)
    except (errors.AlreadyExists, errors.Conflict, errors.NotFound):
        raise click.ClickException(
            "Somebody else has changed the configuration meanwhile, so nothing was changed. "
            "NEXT: look at it (backstay status) and try again"
        ) from None


class ForATime(msgspec.Struct, frozen=True):
    """Something that somebody has set until then."""

    until: str
    reason: str
    by: str


async def set_for_a_time(
    session: Session, field: str, length: timedelta, reason: str
) -> tuple[ForATime, ConfigRow | None]:
    """In one's own name; and the configuration as it was before. It ends by the API's clock:
    controllers go by that, and by their own, but not by that of whoever has asked for it."""
    known = await read_config(session.client)
    by = await own_name(session.client)
    now = session.client.api_now() or session.seams.wall.now()
    done = ForATime(time_text(now + length), reason, by)
    await write_config(session.client, known, {field: msgspec.to_builtins(done)})
    return done, known


async def _create(
    client: KubeClient, spec: Mapping[str, object], annotations: Mapping[str, str]
) -> None:
    labels = {COMPONENT: "backstay"}
    body = {
        "apiVersion": CONFIGS.api_version,
        "kind": CONFIGS.kind,
        "metadata": {"name": CONFIG_NAME, "labels": labels, "annotations": annotations},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    await client.create(CONFIGS, body, manager=MANAGER)
