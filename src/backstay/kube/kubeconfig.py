"""Kubeconfig: what a person's files say about clusters, users and contexts, merged.

The rules are kubectl's, because people test their files with it:

* Of several files, the first one that names a cluster, a user or a context decides about it, as
  a whole; entries of one name are never mixed. The first that sets current-context decides it.
* Relative paths are meant from the directory of the file that they stand in. So is a plugin's
  command that contains a slash; without one it is looked up in PATH.
* ``null`` means "not said", and fields that we do not know are not our business.

Files are input from outside: whatever they contain, the only error is ``ConfigError``, and its
sentence names the file and the place but never quotes a value, which could be a secret.
"""

import os.path
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from backstay.kube.errors import ConfigError
from backstay.kube.plain_yaml import NotPlainYaml, read_plain_yaml
from backstay.seam.files import Files

MAX_SIZE = 8 * 1024 * 1024

T = TypeVar("T")


class NamedExtension(msgspec.Struct, frozen=True):
    """Something that another program keeps in the file; ``extension`` is exactly as written."""

    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a cluster is and how to know that it is the right one."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: tuple[NamedExtension, ...] = ()

    def __repr__(self) -> str:
        return "Cluster(...)"  # a proxy's password may be in its URL


class EnvVar(msgspec.Struct, frozen=True):
    """One variable for a plugin."""

    name: str = ""
    value: str = ""

    def __repr__(self) -> str:
        return f"EnvVar({self.name})"


class ExecConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The program that hands out credentials for a user."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False

    def __repr__(self) -> str:
        return f"ExecConfig({self.command})"


class User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """How a user proves who it is, and as whom it wants to act."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecConfig | None = None
    auth_provider: Any = None
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return "User(...)"


class Context(msgspec.Struct, frozen=True):
    """A cluster, a user and the namespace that is meant when none is named."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: Cluster = Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str = ""
    user: User = User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str = ""
    context: Context = Context()


class _File(msgspec.Struct, frozen=True, rename={"current_context": "current-context"}):
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A cluster, user or context, and the file that it stands in."""

    value: T
    file: str


@dataclass(frozen=True)
class Kubeconfig:
    """One file, or several merged into one view."""

    clusters: Mapping[str, Entry[Cluster]] = field(default_factory=dict)
    users: Mapping[str, Entry[User]] = field(default_factory=dict)
    contexts: Mapping[str, Entry[Context]] = field(default_factory=dict)
    current_context: str = ""

    @property
    def empty(self) -> bool:
        return not (self.clusters or self.users or self.contexts)


async def read_kubeconfig(files: Files, path: str) -> Kubeconfig:
    """Raises ``ConfigError``, but ``FileNotFoundError`` if there is no such file."""
    try:
        if (size := (await files.info(path)).size) > MAX_SIZE:
            raise ConfigError(
                f"{path} is {size} bytes long, which no kubeconfig is: check the path."
            )
        data = await files.read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(
            f"The kubeconfig {path} cannot be read: {error.strerror or error}."
        ) from None
    return parse_kubeconfig(data, path)


def parse_kubeconfig(data: bytes, file: str) -> Kubeconfig:
    """What one file says. Raises ``ConfigError``."""
    said = _decoded(data, file)
    here = os.path.dirname(file)
    clusters = ((entry.name, _located_cluster(entry.cluster, here)) for entry in said.clusters)
    users = ((entry.name, _located_user(entry.user, here)) for entry in said.users)
    contexts = ((entry.name, entry.context) for entry in said.contexts)
    return Kubeconfig(
        clusters=_by_name(clusters, "clusters", file),
        users=_by_name(users, "users", file),
        contexts=_by_name(contexts, "contexts", file),
        current_context=said.current_context,
    )


def merge(configs: Sequence[Kubeconfig]) -> Kubeconfig:
    """One view of several files, the most important one first."""
    clusters: dict[str, Entry[Cluster]] = {}
    users: dict[str, Entry[User]] = {}
    contexts: dict[str, Entry[Context]] = {}
    current_context = ""
    for config in configs:
        clusters = {**config.clusters, **clusters}
        users = {**config.users, **users}
        contexts = {**config.contexts, **contexts}
        current_context = current_context or config.current_context
    return Kubeconfig(clusters, users, contexts, current_context)


def _decoded(data: bytes, file: str) -> _File:
    try:
        tree = read_plain_yaml(data)
    except NotPlainYaml as error:
        raise ConfigError(f"The kubeconfig {file} is not YAML that can be read: {error}.") from None
    if tree is None:
        return _File()
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{file} is not a kubeconfig: it is no mapping of clusters, users and contexts."
        )
    if tree.get("kind") not in (None, "Config"):
        raise ConfigError(f"{file} is not a kubeconfig: its kind is not Config.")
    try:
        return msgspec.convert(_without_nulls(tree), _File)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"The kubeconfig {file} is not valid: {error}; put text that looks like a number or "
            "a boolean in quotes."
        ) from None


def _without_nulls(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_nulls(item) for item in tree if item is not None]
    if isinstance(tree, dict):
        return {
            key: value if key == "extension" else _without_nulls(value)
            for key, value in tree.items()
            if value is not None
        }
    return tree


def _by_name(entries: Iterable[tuple[str, T]], section: str, file: str) -> dict[str, Entry[T]]:
    found: dict[str, Entry[T]] = {}
    for name, value in entries:
        if name in found:
            raise ConfigError(
                f"The kubeconfig {file} has two {section} named {name!r}: remove one."
            )
        found[name] = Entry(value, file)
    return found


def _located_cluster(cluster: Cluster, directory: str) -> Cluster:
    return msgspec.structs.replace(
        cluster, certificate_authority=_located(cluster.certificate_authority, directory)
    )


def _located_user(user: User, directory: str) -> User:
    exec_config = user.exec
    if exec_config is not None and "/" in exec_config.command:
        command = _located(exec_config.command, directory)
        exec_config = msgspec.structs.replace(exec_config, command=command)
    return msgspec.structs.replace(
        user,
        client_certificate=_located(user.client_certificate, directory),
        client_key=_located(user.client_key, directory),
        token_file=_located(user.token_file, directory),
        exec=exec_config,
    )


def _located(path: str, directory: str) -> str:
    return os.path.join(directory, path) if path else ""
