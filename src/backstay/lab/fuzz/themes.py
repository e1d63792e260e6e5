"""Themes: what a case is mostly about, and how often that is dealt.

A theme joins the world in which something matters with the stories that bring it about. One of its
own stories is always told, and often another of them, or one that can happen to anybody.
"""

from collections.abc import Callable
from dataclasses import dataclass

from backstay.lab.fuzz import (
    deaths,
    guests,
    leaders,
    maintenance,
    people,
    power,
    replication,
    silence,
    storage,
    words,
    worlds,
)
from backstay.lab.fuzz.scene import LONGEST, Story, Weighted
from backstay.lab.scenario import Scenario
from backstay.sim.chance import Chance


@dataclass(frozen=True)
class Theme:
    """``cards`` is how often it is dealt in each round, ``others`` how many stories from elsewhere
    are laid over its own in any case, ``mixed`` how often one more of its own is, and one more from
    elsewhere, unless it is told alone. A share of its cases, ``patience``, last until all that was
    promised must have been kept. What comes of the ``loss`` of a node shows after so many seconds,
    and each case ``lasts`` for so many at least."""

    name: str
    cards: int
    world: Callable[[Chance], Scenario]
    stories: Weighted[Story]
    others: int = 0
    mixed: float = 0.5
    patience: float = 0.06
    loss: float = 43.0
    lasts: float = 0.0


FOREIGN: Weighted[Story] = [
    (6, deaths.node_dies),
    (4, deaths.node_seems_dead),
    (2, deaths.node_reboots),
    (1, deaths.node_flaps),
    (2, deaths.node_is_odd),
    (3, leaders.controller_dies),
    (3, leaders.controller_stalls),
    (2, leaders.api_fails),
    (1, leaders.program_fails),
    (1, leaders.lease_is_lost),
    (1, leaders.api_is_restored),
    (1, words.clocks_are_set),
    (2, guests.guest_is_moved),
    (2, guests.guest_is_disturbed),
    (2, people.minds_change),
    (2, people.rules_change),
    (3, people.somebody_meddles),
    (2, people.owner_changes_something),
]
"""What can be laid over any theme."""

THEMES: tuple[Theme, ...] = (
    Theme(
        "deaths", 1, worlds.mixed,
        [
            (1, deaths.dies_for_good), (1, deaths.second_dies_for_good), (1, deaths.first_dies),
            (1, deaths.second_dies), (1, deaths.node_dies),
        ],
        patience=0.5,
    ),
    Theme(
        "words too early", 2, worlds.watched,
        [
            (3, words.taken_back_before_we_are_armed), (2, words.heard_before_we_are_armed),
            (2, words.booted_before_we_are_armed), (3, words.heard_while_none_of_us_is_there),
        ],
    ),
    Theme(
        "words that are wrong", 3, worlds.small,
        [
            (4, words.wrongly_declared_dead), (3, words.said_before_it_booted),
            (1, words.refuted_by_life), (2, words.refuted_by_an_answer),
            (2, words.refuted_early_by_an_answer), (2, words.deaf_and_declared_dead),
            (1, deaths.node_seems_dead),
        ],
    ),
    Theme(
        "arming", 2, worlds.small,
        [
            (3, people.dies_while_we_are_disarmed), (2, people.dies_while_we_only_observe),
            (1, people.dies_and_its_kind_is_left_out),
            (1, people.dies_without_configuration), (2, people.minds_change),
            (1, people.dies_while_we_are_disarmed_and_clocks_are_set),
        ],
    ),
    Theme(
        "leaders", 1, worlds.of_two,
        [
            (1, leaders.helper_dies_too), (1, leaders.helper_stands_still),
            (2, leaders.helper_wakes_up_deposed), (1, leaders.lease_is_lost),
        ],
        patience=1.0,
    ),
    Theme(
        "leaders on nodes", 1, worlds.of_two_on_nodes,
        [(2, leaders.helper_dies_too), (1, leaders.helper_stands_still), (2, deaths.node_dies)],
        patience=1.0,
    ),
    Theme(
        "a restored API", 2, worlds.of_two,
        [
            (2, leaders.api_is_restored), (3, leaders.restored_while_one_is_away),
            (1, leaders.restored_to_before_it_booted), (2, leaders.restored_by_the_book),
            (1, leaders.restored_again_while_the_leader_was_away),
            (1, leaders.restored_by_the_book_while_the_leader_was_away),
        ],
    ),
    Theme(
        "clocks and heartbeats", 1, worlds.small,
        [(2, words.a_wrong_clock_misleads), (3, guests.guests_outlive_it)],
    ),
    Theme(
        "storms", 1, worlds.stormy,
        [
            (2, deaths.several_die), (1, deaths.several_die_and_people_hurry),
            (2, deaths.die_in_turn),
        ],
    ),
    Theme(
        "owners", 1, worlds.owned,
        [
            (2, deaths.dies_for_good), (1, deaths.first_dies),
            (2, people.says_what_we_do_not_know), (1, people.rules_change_as_it_is_dealt_with),
        ],
    ),
    Theme(
        "other programs", 1, worlds.of_others,
        [
            (3, deaths.dies_for_good), (2, deaths.first_dies),
            (2, people.rules_change_as_it_is_dealt_with),
        ],
    ),
    Theme(
        "silence", 2, worlds.silent,
        [
            (2, silence.falls_silent), (1, silence.is_heard_again), (1, silence.stands_still),
            (2, silence.nobody_reaches_it), (2, silence.one_of_us_reaches_it_not),
            (2, silence.several_fall_silent),
        ],
        loss=LONGEST,
    ),
    Theme(
        "silence that is not enough", 1, worlds.silent_and_bounded,
        [(2, silence.falls_silent), (3, deaths.dies_for_good)],
        loss=LONGEST,
    ),
    Theme(
        "guests", 1, worlds.inhabited,
        [
            (1, guests.kubelet_dies), (1, guests.said_to_have_failed),
            (1, guests.deleted_and_nobody_hears), (1, guests.guest_loses_its_source),
            (1, guests.guest_is_moved),
        ],
        lasts=100.0,
    ),
    Theme(
        "guests that are moved", 1, worlds.inhabited_by_movers,
        [
            (3, guests.kubelet_dies), (1, guests.said_to_have_failed),
            (1, guests.deleted_and_nobody_hears),
        ],
        lasts=100.0,
    ),
    Theme(
        "addresses", 1, worlds.addressed,
        [
            (3, storage.addresses_are_disturbed), (3, deaths.node_seems_dead),
            (4, storage.address_is_taken),
        ],
    ),
    Theme(
        "fences", 2, worlds.fenced,
        [
            (3, storage.fenced_by_others), (3, deaths.node_is_gone), (4, words.deaf_to_the_api),
        ],
        lasts=56.0,
    ),
    Theme(
        "volumes", 1, worlds.attached,
        [(2, deaths.dies_for_good), (1, deaths.first_dies), (2, deaths.put_out_by_hand)],
    ),
    Theme(
        "meddling", 1, worlds.mixed,
        [(4, people.incident_is_deleted), (1, people.somebody_meddles)], patience=1.0,
    ),
    Theme(
        # Its stories are long, and most of what is laid over them ends them before their time.
        "replicated volumes", 9, replication.world, replication.STORIES, mixed=0.1,
        loss=replication.LOSS,
    ),
    Theme(
        "maintenance", 2, maintenance.world,
        [*maintenance.STORIES, (1, maintenance.amid(FOREIGN))],
    ),
    Theme("power", 2, power.world, power.STORIES, loss=power.LOSS, patience=0.2),
    Theme("everything", 1, worlds.rich, deaths.OF_NODES, others=2, patience=0.4),
)  # fmt: skip
