"""Which cluster is meant when somebody just starts Backstay: the same one that kubectl would use.

1. ``--kubeconfig``: that file, and it has to be there.
2. ``KUBECONFIG``: a list of files, merged; those that do not exist do not count.
3. ``~/.kube/config``, only if ``KUBECONFIG`` is not set.
4. The pod's own service account, if nothing above says anything and no context is asked for.
"""

import os
from collections.abc import Mapping, Sequence

from backstay.kube.access import Access
from backstay.kube.context_access import context_access
from backstay.kube.errors import ConfigError
from backstay.kube.in_cluster import in_a_pod, in_cluster_access
from backstay.kube.kubeconfig import Kubeconfig, merge, read_kubeconfig
from backstay.seam import Seams
from backstay.seam.files import Files


async def find_access(
    seams: Seams,
    *,
    environ: Mapping[str, str],
    kubeconfig: str | None = None,
    context: str | None = None,
    terminal: bool = False,
) -> Access:
    """The access that is configured. Raises ``ConfigError`` with all the places that were tried.

    Credentials are fetched when the first ``grant`` asks for them. Where a person may have to
    log in (``terminal``), ask for one before the first request, whose time is limited.
    """
    if kubeconfig:
        config = await _explicit(seams.files, kubeconfig)
    else:
        paths = _default_paths(environ)
        config = await _merged(seams.files, paths)
        if config.empty:
            if in_a_pod(environ) and not context:
                return await in_cluster_access(seams.files, environ)
            raise ConfigError(_nowhere(paths, environ, context))
    return context_access(config, context, seams=seams, environ=environ, terminal=terminal)


def _default_paths(environ: Mapping[str, str]) -> list[str]:
    if listed := environ.get("KUBECONFIG"):
        return [path for path in dict.fromkeys(listed.split(os.pathsep)) if path]
    home = environ.get("HOME")
    return [os.path.join(home, ".kube", "config")] if home else []


async def _explicit(files: Files, path: str) -> Kubeconfig:
    try:
        return await read_kubeconfig(files, path)
    except FileNotFoundError:
        raise ConfigError(f"There is no kubeconfig {path}: check --kubeconfig.") from None


async def _merged(files: Files, paths: Sequence[str]) -> Kubeconfig:
    configs = []
    for path in paths:
        try:
            configs.append(await read_kubeconfig(files, path))
        except FileNotFoundError:
            continue
    return merge(configs)


def _nowhere(paths: Sequence[str], environ: Mapping[str, str], context: str | None) -> str:
    if paths:
        source = "KUBECONFIG names" if environ.get("KUBECONFIG") else "the default is"
        looked = f"{source} {' and '.join(paths)}, where nothing is configured"
    else:
        looked = "neither KUBECONFIG nor HOME is set"
    if in_a_pod(environ):
        pod = f"the service account of this pod has no context {context!r}"
    else:
        pod = "this is not a pod (KUBERNETES_SERVICE_HOST is not set)"
    return f"No cluster to talk to: {looked}, and {pod}; give --kubeconfig or set KUBECONFIG."
