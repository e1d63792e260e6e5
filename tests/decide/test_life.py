"""A node's life as a table: from where, with what, to where, and with which reason."""

from typing import Any

import msgspec
import pytest

from backstay.decide.life import born, guests_alive, shows_life, silence, step
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Times
from backstay.model.reasons import Reason

replace = msgspec.structs.replace

TIMES = Times(suspect=22, lost=40, confirmed=12)
T0 = 1000.0
"""When the lease was last seen to change."""


def facts(silent: float = 0.0, **changes: Any) -> NodeFacts:
    """A node whose lease changed at T0, looked at so many seconds later."""
    base = NodeFacts(
        name="n1",
        uid="u1",
        boot_id="b1",
        looked_at=T0 + silent,
        lease_seen_at=10.0,
        lease_changed_at=T0,
    )
    return replace(base, **changes)


def life(state: Life, *, suspected_at: float | None = T0 + 22) -> NodeLife:
    return NodeLife(
        node_uid="u1",
        boot_id="b1",
        state=state,
        since=T0 + 1,
        suspected_at=None if state is Life.HEALTHY else suspected_at,
        why=Reason.NodeHealthy.because(node="n1"),
    )


ALIVE_AGAIN = {"lease_changed_at": T0 + 50, "looked_at": T0 + 51}
REBOOTED = {"boot_id": "b2"}
RECREATED = {"uid": "u2"}
NOT_HEARD_YET = {"lease_seen_at": T0, "lease_changed_at": None}
NO_LEASE = {"lease_seen_at": None, "lease_changed_at": None}


@pytest.mark.parametrize(
    ("state", "silent", "changes", "told", "then"),
    [
        # Silence
        (Life.HEALTHY, 21.9, {}, {}, Life.HEALTHY),
        (Life.HEALTHY, 22, {}, {}, Life.SUSPECT),
        (Life.HEALTHY, 500, {}, {}, Life.SUSPECT),
        (Life.HEALTHY, 500, NO_LEASE, {}, Life.HEALTHY),
        (Life.HEALTHY, 0, {"ready": "False"}, {}, Life.HEALTHY),
        (Life.SUSPECT, 39.9, {}, {}, Life.SUSPECT),
        (Life.SUSPECT, 40, {}, {}, Life.LOST),
        (Life.LOST, 500, {}, {}, Life.LOST),
        # A person's word shortens the wait, but not to nothing
        (Life.HEALTHY, 0, {}, {"confirmed": True}, Life.HEALTHY),
        (Life.HEALTHY, 0.5, {}, {"confirmed": True}, Life.SUSPECT),
        (Life.SUSPECT, 11.9, {}, {"confirmed": True}, Life.SUSPECT),
        (Life.SUSPECT, 12, {}, {"confirmed": True}, Life.LOST),
        # Proof, and the end of the work
        (Life.SUSPECT, 30, {}, {"proven": True}, Life.SUSPECT),
        (Life.LOST, 50, {}, {"proven": True}, Life.PROVEN),
        (Life.LOST, 50, {}, {"recovered": True}, Life.LOST),
        (Life.PROVEN, 50, {}, {}, Life.PROVEN),
        (Life.PROVEN, 50, {}, {"recovered": True}, Life.RECOVERED),
        (Life.RECOVERED, 50, {}, {"proven": True, "recovered": True}, Life.RECOVERED),
        # Life
        (Life.SUSPECT, 0, ALIVE_AGAIN, {}, Life.HEALTHY),
        (Life.LOST, 0, ALIVE_AGAIN, {}, Life.RETURNING),
        (Life.PROVEN, 0, ALIVE_AGAIN, {"recovered": True}, Life.RETURNING),
        (Life.RECOVERED, 0, ALIVE_AGAIN, {}, Life.RETURNING),
        (Life.LOST, 50, {"heartbeat_changed_at": T0 + 49}, {}, Life.LOST),
        # A new boot, or another machine of the same name
        (Life.HEALTHY, 0, REBOOTED, {}, Life.HEALTHY),
        (Life.SUSPECT, 30, REBOOTED, {}, Life.HEALTHY),
        (Life.SUSPECT, 30, REBOOTED | {"tainted": True}, {}, Life.RETURNING),
        (Life.LOST, 50, REBOOTED, {}, Life.RETURNING),
        (Life.PROVEN, 50, REBOOTED, {"recovered": True}, Life.RETURNING),
        (Life.RECOVERED, 50, RECREATED, {}, Life.RETURNING),
        # The return
        (Life.RETURNING, 0, {}, {}, Life.RETURNING),
        (Life.RETURNING, 0, {}, {"clean": True}, Life.HEALTHY),
        (Life.RETURNING, 22, {}, {"clean": True}, Life.SUSPECT),
        (Life.HEALTHY, 0, {"tainted": True}, {}, Life.RETURNING),
        (Life.HEALTHY, 0, NOT_HEARD_YET | {"tainted": True}, {}, Life.HEALTHY),
    ],
)
def test_each_step_of_a_life(
    state: Life, silent: float, changes: dict[str, Any], told: dict[str, bool], then: Life
) -> None:
    seen = facts(silent, **changes)
    assert step(life(state), seen, seen.looked_at, times=TIMES, **told).state is then


def test_a_life_that_does_not_change_keeps_its_beginning() -> None:
    before = life(Life.LOST)
    assert step(before, facts(100), T0 + 100, times=TIMES) is before


def test_suspicion_begins_at_the_moment_it_is_raised() -> None:
    raised = step(life(Life.HEALTHY), facts(25), T0 + 25, times=TIMES)
    assert (raised.suspected_at, raised.since) == (T0 + 25, T0 + 25)
    assert raised.why.code == "NodeSuspect"


def test_to_be_lost_does_not_move_the_moment_of_suspicion() -> None:
    lost = step(life(Life.SUSPECT), facts(41), T0 + 41, times=TIMES)
    assert (lost.suspected_at, lost.since) == (T0 + 22, T0 + 41)
    assert lost.why.sentence == "n1 is lost: no sign of life for 41 s."


def test_a_second_silence_after_a_return_is_a_new_suspicion() -> None:
    returning = life(Life.RETURNING, suspected_at=T0 - 500)
    again = step(returning, facts(30), T0 + 30, times=TIMES)
    assert again.suspected_at == T0 + 30


def test_a_reboot_is_told_as_one() -> None:
    reborn = step(life(Life.LOST), facts(0, boot_id="b2"), T0, times=TIMES)
    assert (reborn.boot_id, reborn.why.code) == ("b2", "NodeRebooted")


def test_a_new_boot_is_healthy_from_now_on() -> None:
    new = born(facts(), 7.0)
    assert (new.state, new.since, new.suspected_at) == (Life.HEALTHY, 7.0, None)


def test_silence_is_counted_up_to_the_last_look_and_no_further() -> None:
    assert silence(facts(13)) == 13


def test_silence_before_we_began_to_count_does_not_count() -> None:
    assert silence(facts(13, lease_seen_at=T0 + 10)) == 3


def test_a_lease_that_never_changed_is_silent_since_it_was_seen() -> None:
    assert silence(facts(13, lease_changed_at=None, lease_seen_at=T0)) == 13


def test_a_change_at_the_very_moment_of_suspicion_is_none_after_it() -> None:
    suspect = life(Life.SUSPECT)
    assert not shows_life(suspect, facts(lease_changed_at=T0 + 22))
    assert shows_life(suspect, facts(lease_changed_at=T0 + 22.001))


def test_a_healthy_node_cannot_have_shown_life_after_a_suspicion() -> None:
    assert not shows_life(life(Life.HEALTHY), facts())


def test_guests_live_where_only_the_handler_is_heard() -> None:
    lost = life(Life.LOST)
    assert guests_alive(lost, facts(heartbeat_changed_at=T0 + 30), TIMES)
    assert not guests_alive(lost, facts(heartbeat_changed_at=T0 + 10), TIMES)
    both = facts(heartbeat_changed_at=T0 + 30, lease_changed_at=T0 + 30)
    assert not guests_alive(lost, both, TIMES)


def test_a_handler_that_fell_silent_too_no_longer_speaks_for_its_guests() -> None:
    lost = life(Life.LOST)
    assert guests_alive(lost, facts(179, heartbeat_changed_at=T0 + 30), TIMES)
    assert not guests_alive(lost, facts(180, heartbeat_changed_at=T0 + 30), TIMES)


def test_a_kubelet_that_posts_its_status_is_not_silent() -> None:
    assert silence(facts(60.0, status_changed_at=T0 + 45)) == 15.0
    assert silence(facts(60.0, status_changed_at=T0 - 5)) == 60.0


def test_a_status_that_is_posted_after_suspicion_began_is_life() -> None:
    lost = life(Life.LOST)
    assert shows_life(lost, facts(60.0, status_changed_at=T0 + 45))
    assert not shows_life(lost, facts(60.0, status_changed_at=T0 + 5))
