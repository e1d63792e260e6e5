"""Credential plugins: run once for all, believed only as far as they keep the protocol."""

import asyncio
import json
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trustme

from backstay.kube.credentials import Identity
from backstay.kube.errors import ConfigError
from backstay.kube.exec_plugin import ClusterInfo, ExecPlugin
from backstay.kube.kubeconfig import EnvVar, ExecConfig
from backstay.kube.pem import KeyPair
from backstay.seam import Seams
from backstay.seam.errors import ExecTimedOut
from backstay.seam.exec import Command
from backstay.seam.real import open_seams
from tests.support.dice import HIGHEST
from tests.support.local import NEW_YEAR, LocalSeams
from tests.support.virtual import virtual_time

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
ENVIRON = {"PATH": "/usr/bin:/bin"}


async def cluster() -> ClusterInfo:
    return ClusterInfo(server="https://192.0.2.1:6443")


def exec_plugin(
    seams: Seams,
    program: Path | str,
    /,
    *,
    environ: Mapping[str, str] = ENVIRON,
    terminal: bool = False,
    **settings: Any,
) -> ExecPlugin:
    config = ExecConfig(
        **{"command": str(program), "api_version": V1, "interactive_mode": "Never"} | settings
    )
    return ExecPlugin(
        config,
        seams=seams,
        environ=environ,
        terminal=terminal,
        cluster=cluster,
        who="user 'ann' in config",
    )


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


def printing(path: Path, answer: object) -> Path:
    """A plugin that prints the answer; ``<run>`` in it, which no PEM has, becomes the number of the
    run."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    pieces = '"$run"'.join(shlex.quote(piece) for piece in text.split("<run>"))
    count = path.with_suffix(".runs")
    count.write_text("0\n")
    return script(
        path,
        f"read run < {count}",
        "run=$((run + 1))",
        f"echo $run > {count}",
        f"printf %s {pieces}",
    )


def runs(path: Path) -> int:
    return int(path.with_suffix(".runs").read_text())


def answer(*, api_version: str = V1, kind: str = "ExecCredential", **status: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "status": status}


def expiring(seconds: float) -> dict[str, Any]:
    """A new token in each run, all of which expire at one moment of the first day of the year."""
    ends = NEW_YEAR + timedelta(seconds=seconds)
    return answer(token="token-<run>", expirationTimestamp=ends.isoformat().replace("+00:00", "Z"))


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return tmp_path / "plugin"


@virtual_time
async def test_a_token_is_kept_while_nothing_speaks_against_it(plugin: Path) -> None:
    login = exec_plugin(LocalSeams(), printing(plugin, answer(token="token-<run>")))
    assert await login.identity() == Identity(authorization="Bearer token-1")
    await asyncio.sleep(7 * 86400)
    assert await login.identity() == Identity(authorization="Bearer token-1")


@virtual_time
async def test_a_client_certificate_comes_with_its_key(plugin: Path) -> None:
    leaf = trustme.CA().issue_cert("ann@example.org")
    cert, key = leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()
    printed = answer(clientCertificateData=cert.decode(), clientKeyData=key.decode())
    identity = await exec_plugin(LocalSeams(), printing(plugin, printed)).identity()
    assert identity == Identity(pair=KeyPair(cert, key))


@virtual_time
async def test_the_next_token_is_fetched_a_little_before_the_end(plugin: Path) -> None:
    login = exec_plugin(LocalSeams(), printing(plugin, expiring(3600)))
    await login.identity()
    await asyncio.sleep(3600 - 60.1)
    assert (await login.identity()).authorization == "Bearer token-1"
    await asyncio.sleep(0.1)
    assert (await login.identity()).authorization == "Bearer token-2"


@virtual_time
async def test_time_that_only_the_wall_clock_saw_counts(plugin: Path) -> None:
    seams = LocalSeams()
    login = exec_plugin(seams, printing(plugin, expiring(3600)))
    await login.identity()
    seams.wall.ahead = timedelta(seconds=3599)
    assert (await login.identity()).authorization == "Bearer token-2"


@virtual_time
async def test_turning_the_wall_clock_back_does_not_prolong_a_credential(plugin: Path) -> None:
    seams = LocalSeams()
    login = exec_plugin(seams, printing(plugin, expiring(3600)))
    await login.identity()
    await asyncio.sleep(3600)
    seams.wall.ahead = timedelta(days=-1)
    assert (await login.identity()).authorization == "Bearer token-2"


@virtual_time
async def test_a_plugin_that_fails_early_leaves_the_credential_in_use_to_its_end(
    plugin: Path, caplog: pytest.LogCaptureFixture
) -> None:
    login = exec_plugin(LocalSeams(), printing(plugin, expiring(3600)))
    await login.identity()
    script(plugin, "echo not logged in >&2", "exit 1")
    await asyncio.sleep(3550)
    for _ in range(9):
        assert (await login.identity()).authorization == "Bearer token-1"
        await asyncio.sleep(5)
    await asyncio.sleep(5)
    with pytest.raises(ConfigError, match="not logged in"):
        await login.identity()
    assert len(caplog.messages) == 1
    assert "used until it expires" in caplog.text


@virtual_time
async def test_who_comes_while_the_next_one_is_fetched_early_does_not_wait(plugin: Path) -> None:
    seams = LocalSeams()
    login = exec_plugin(seams, printing(plugin, expiring(3600)))
    await login.identity()
    await asyncio.sleep(3550)
    seams.exec.takes = 20.0
    first, second = await asyncio.gather(login.identity(), login.identity())
    assert first.authorization == "Bearer token-2"
    assert second.authorization == "Bearer token-1"


@virtual_time
async def test_a_refused_credential_is_fetched_anew_at_once(plugin: Path) -> None:
    login = exec_plugin(LocalSeams(), printing(plugin, answer(token="token-<run>")))
    await login.identity()
    login.refused()
    assert (await login.identity()).authorization == "Bearer token-2"


@virtual_time
async def test_a_server_that_refuses_everything_does_not_run_the_plugin_each_time(
    plugin: Path,
) -> None:
    login = exec_plugin(LocalSeams(), printing(plugin, answer(token="token-<run>")))
    for _ in range(40):
        await login.identity()
        login.refused()
        await asyncio.sleep(1)
    # One at the start, and then one for every ten seconds.
    assert runs(plugin) == 1 + 4


@virtual_time
async def test_a_broken_plugin_is_left_alone_for_longer_and_longer(plugin: Path) -> None:
    seams = LocalSeams(rng=HIGHEST)
    login = exec_plugin(seams, script(plugin, "exit 3"))
    ran_at: list[float] = []
    for half_seconds in range(60):
        with pytest.raises(ConfigError, match="ended with code 3: it said nothing"):
            await login.identity()
        if len(seams.exec.commands) > len(ran_at):
            ran_at.append(half_seconds / 2)
        await asyncio.sleep(0.5)
    assert ran_at == [0, 1, 3, 7, 15]


@virtual_time
async def test_a_plugin_that_has_worked_is_asked_again_soon_after_its_next_failure(
    plugin: Path,
) -> None:
    seams = LocalSeams(rng=HIGHEST)
    login = exec_plugin(seams, script(plugin, "exit 1"))
    for _ in range(4):
        with pytest.raises(ConfigError):
            await login.identity()
        await asyncio.sleep(10)
    printing(plugin, answer(token="x"))
    await login.identity()
    login.refused()
    script(plugin, "exit 1")
    runs_before = len(seams.exec.commands)
    for _ in range(2):
        with pytest.raises(ConfigError):
            await login.identity()
        await asyncio.sleep(1)
    assert len(seams.exec.commands) == runs_before + 2


@virtual_time
async def test_a_plugin_that_works_again_is_believed_again(plugin: Path) -> None:
    login = exec_plugin(LocalSeams(), script(plugin, "exit 1"))
    with pytest.raises(ConfigError):
        await login.identity()
    printing(plugin, answer(token="token-<run>"))
    await asyncio.sleep(1)
    assert (await login.identity()).authorization == "Bearer token-1"


async def test_many_callers_run_a_real_plugin_once(plugin: Path) -> None:
    async with open_seams() as seams:
        login = exec_plugin(seams, printing(plugin, answer(token="token-<run>")))
        identities = await asyncio.gather(*(login.identity() for _ in range(20)))
    assert {identity.authorization for identity in identities} == {"Bearer token-1"}
    assert runs(plugin) == 1


async def test_a_caller_who_gives_up_leaves_the_others_their_credential(plugin: Path) -> None:
    async with open_seams() as seams:
        login = exec_plugin(seams, printing(plugin, answer(token="token-<run>")))
        async with asyncio.TaskGroup() as group:
            gives_up = group.create_task(login.identity())
            stays = group.create_task(login.identity())
            await asyncio.sleep(0)
            gives_up.cancel()
    assert (await stays).authorization is not None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"command": ""}, "has no command"),
        ({"api_version": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1': update"),
        ({"api_version": ""}, "uses apiVersion ''"),
        ({"interactive_mode": ""}, "needs interactiveMode"),
        ({"interactive_mode": "Sometimes"}, "needs interactiveMode"),
        ({"interactive_mode": "Always"}, "there is no terminal"),
        ({"env": (EnvVar("A=B", "c"),)}, "no valid name"),
        ({"env": (EnvVar("", "c"),)}, "no valid name"),
    ],
)
@virtual_time
async def test_an_entry_that_can_never_work_is_refused_before_anything_runs(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        exec_plugin(LocalSeams(), "plugin", **settings)
    assert "of user 'ann' in config" in str(caught.value)


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("", "it is not JSON"),
        ("s3cr3t", "it is not JSON"),
        ('{"s3cr3t"', "it is not JSON"),
        ("[]", "Expected `object`, got `array`"),
        (answer(api_version=V1BETA1, token="s3cr3t"), f"an ExecCredential of {V1}"),
        (answer(kind="s3cr3t", token="s3cr3t"), "an ExecCredential of"),
        ({"apiVersion": V1, "kind": "ExecCredential"}, "neither a token nor"),
        ({"apiVersion": V1, "kind": "ExecCredential", "status": None}, "neither a token nor"),
        (answer(token=""), "neither a token nor"),
        (answer(clientKeyData="s3cr3t"), "a key without its certificate"),
        (answer(token="x", clientCertificateData="s3cr3t"), "certificate without its key"),
        (answer(clientCertificateData="s3cr3t", clientKeyData="s3cr3t"), "no complete certificate"),
        (answer(token="s3cr3t\r\nX-Admin: 1"), "characters that no token has"),
        (answer(token="s3cr3t", expirationTimestamp="tomorrow"), "Invalid RFC3339"),
        (answer(token="s3cr3t", expirationTimestamp="2030-01-01T00:00:00"), "timezone"),
        (answer(token="s3cr3t", expirationTimestamp="2029-12-31T23:59:59Z"), "expired at 2029"),
    ],
)
@virtual_time
async def test_an_answer_that_breaks_the_protocol_is_refused_and_never_quoted(
    plugin: Path, printed: object, sentence: str
) -> None:
    login = exec_plugin(LocalSeams(), printing(plugin, printed))
    with pytest.raises(ConfigError, match=sentence) as caught:
        await login.identity()
    assert "s3cr3t" not in str(caught.value)


@virtual_time
async def test_a_failure_cites_the_last_line_of_stderr_and_nothing_of_stdout(plugin: Path) -> None:
    script(
        plugin,
        "echo s3cr3t",
        "echo first >&2",
        "printf '\\033[31mlog in\\tagain\\033[0m.\\n\\n' >&2",
        "exit 2",
    )
    with pytest.raises(ConfigError) as caught:
        await exec_plugin(LocalSeams(), plugin).identity()
    assert str(caught.value) == (
        f"The credential plugin '{plugin}' of user 'ann' in config ended with code 2: log in again."
    )


@virtual_time
async def test_a_plugin_that_spoke_to_a_person_is_not_called_silent(plugin: Path) -> None:
    # What it writes to the terminal does not come through us, so we have nothing to cite.
    login = exec_plugin(
        LocalSeams(), script(plugin, "exit 1"), terminal=True, interactive_mode="Always"
    )
    with pytest.raises(ConfigError, match="ended with code 1: see its own words above"):
        await login.identity()


async def test_a_missing_plugin_shows_its_install_hint_in_one_line() -> None:
    async with open_seams() as seams:
        login = exec_plugin(seams, "no-such-plugin", install_hint="Get it:\n\x1b[1m brew x\n")
        with pytest.raises(ConfigError, match=r"does not run: .* Get it: brew x\.$"):
            await login.identity()


async def test_a_plugin_that_may_not_be_executed_is_a_sentence(plugin: Path) -> None:
    script(plugin, "echo").chmod(0o644)
    async with open_seams() as seams:
        with pytest.raises(ConfigError, match="Permission denied; install it, or correct"):
            await exec_plugin(seams, plugin).identity()


class _NeverEnds:
    async def run(self, command: Command) -> NoReturn:
        await asyncio.sleep(command.timeout)
        raise ExecTimedOut("killed")


@virtual_time
async def test_a_plugin_that_never_ends_is_a_sentence_after_a_minute() -> None:
    local = LocalSeams()
    seams = Seams(local.transport, local.serve, _NeverEnds(), local.files, local.wall, local.rng)
    with pytest.raises(ConfigError, match="did not end within 60 s"):
        await exec_plugin(seams, "plugin").identity()
    assert asyncio.get_running_loop().time() == 60


@virtual_time
async def test_it_sees_the_given_environment_and_its_own_variables_and_no_more(
    plugin: Path,
) -> None:
    printing(plugin, answer(token="x"))
    seams = LocalSeams()
    environ = {**ENVIRON, "REGION": "east", "LEFT": "alone"}
    env = (EnvVar("REGION", "west"), EnvVar("KUBERNETES_EXEC_INFO", "forged"))
    await exec_plugin(seams, plugin, environ=environ, env=env, args=("get", "token")).identity()
    (command,) = seams.exec.commands
    assert command.argv == (str(plugin), "get", "token")
    told = json.loads(command.env["KUBERNETES_EXEC_INFO"])
    assert told == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    rest = {name: value for name, value in command.env.items() if name != "KUBERNETES_EXEC_INFO"}
    assert rest == {**ENVIRON, "REGION": "west", "LEFT": "alone"}


@pytest.mark.parametrize(
    ("version", "mode", "terminal", "interactive"),
    [
        (V1, "Never", True, False),
        (V1, "IfAvailable", True, True),
        (V1, "IfAvailable", False, False),
        (V1, "Always", True, True),
        (V1BETA1, "", True, True),
        (V1BETA1, "", False, False),
    ],
)
@virtual_time
async def test_it_may_talk_to_a_person_if_it_wants_to_and_there_is_one(
    plugin: Path, version: str, mode: str, terminal: bool, interactive: bool
) -> None:
    printing(plugin, answer(api_version=version, token="x"))
    seams = LocalSeams()
    login = exec_plugin(
        seams, plugin, terminal=terminal, api_version=version, interactive_mode=mode
    )
    await login.identity()
    (command,) = seams.exec.commands
    assert command.terminal == interactive
    assert json.loads(command.env["KUBERNETES_EXEC_INFO"])["spec"]["interactive"] == interactive
