"""The cluster's one BackstayConfig: reading it, and changing what was read and nothing newer."""

from collections.abc import Mapping

import click

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, Config, ConfigRow, config_row
from backstay.cli.consent import is_unknown_kind, our_kinds
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.model.labels import COMPONENT, MANAGER

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
