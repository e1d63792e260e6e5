"""Deliberate bugs in how power is read and switched; see ``bugs.py``."""

from backstay.decide import power
from backstay.lab import power_cases
from backstay.lab.broken_power import (
    AsksOnce,
    BelievesTheCommand,
    ForgetsOlderClaims,
    HastyPower,
    OfAnyMachine,
    OnForAnybody,
    PowerForAnybody,
    RestartsInstead,
    SwitchesOnTooSoon,
    WithoutIntent,
    power_without,
)
from backstay.lab.bug import Bug

POWER_BUGS: tuple[Bug, ...] = (
    Bug(
        "believes-the-command",
        "That a BMC has accepted a command is taken for its having carried it out.",
        "sources/power.py: _try",
        frozenset({"NoDeleteWithoutEvidence", "OneWriter"}),
        {"power_source": BelievesTheCommand},
        power_cases.STUCK,
    ),
    Bug(
        "reads-power-once",
        "That a node is off is not read again once its pods are marked.",
        "sources/power.py: ask",
        frozenset({"ProofAfterBarrier"}),
        {"power_source": AsksOnce},
        power_cases.SWITCHED_OFF,
    ),
    Bug(
        "trusts-any-device",
        "Whichever machine a BMC belongs to, it is switched.",
        "sources/power.py: _is_its",
        frozenset({"NoBystander"}),
        {"power_source": OfAnyMachine},
        power_cases.MISWIRED,
    ),
    Bug(
        "switches-off-the-living",
        "A node that answers is switched off.",
        "decide/power.py: is_anything_heard",
        frozenset({"NoHealthyGuestStopped"}),
        {
            "power_chain": power_without(
                power.is_anything_heard, power.is_it_silent_elsewhere, power.would_it_help
            )
        },
        power_cases.ANSWERS,
    ),
    Bug(
        "switches-off-in-a-storm",
        "Nodes are switched off however many are silent.",
        "decide/power.py: is_it_a_storm",
        frozenset({"Storm"}),
        {"power_chain": power_without(power.is_it_a_storm)},
        power_cases.SEVERAL,
    ),
    Bug(
        "switches-off-while-observing",
        "Nodes are switched off although nobody has armed us.",
        "decide/power.py: may_we_act",
        frozenset({"Disarm"}),
        {"power_chain": power_without(power.may_we_act)},
        power_cases.WATCHED,
    ),
    Bug(
        "switches-off-in-maintenance",
        "A node that somebody works at is switched off.",
        "decide/power.py: is_it_in_maintenance",
        frozenset({"NoBystander"}),
        {"power_chain": power_without(power.is_it_in_maintenance)},
        power_cases.WORKED_AT,
    ),
    Bug(
        "switches-off-the-last-copy",
        "A node is switched off that has the last good copy of what is to be moved.",
        "decide/power.py: has_it_the_last_copy",
        frozenset({"LastCopy"}),
        {"power_chain": power_without(power.has_it_the_last_copy)},
        power_cases.LAST_COPY,
    ),
    Bug(
        "guesses-at-copies",
        "A node is switched off while nobody knows whether it has the last good copy.",
        "decide/power.py: are_its_copies_known",
        frozenset({"LastCopy"}),
        {"power_chain": power_without(power.are_its_copies_known)},
        power_cases.COPIES_UNTOLD,
    ),
    Bug(
        "switches-off-the-majority",
        "A node is switched off without which the control plane has no majority.",
        "decide/power.py: does_the_control_plane_need_it",
        frozenset({"NoBystander"}),
        {"power_chain": power_without(power.does_the_control_plane_need_it)},
        power_cases.MAJORITY,
    ),
    Bug(
        "switches-for-others",
        "Nodes are switched off although fencing is another program's job.",
        "decide/power.py: is_it_our_job",
        frozenset({"OneOwner"}),
        {"power_chain": power_without(power.is_it_our_job)},
        power_cases.FENCED_BY_OTHERS,
    ),
    Bug(
        "switches-unannounced",
        "A BMC is asked to switch a node, and no incident tells of it.",
        "control/guard.py: _claim",
        frozenset({"Epoch"}),
        {"guard": WithoutIntent},
        power_cases.SWITCHED_OFF,
    ),
    Bug(
        "restarts-instead",
        "A node is made to restart, which is off for a moment only.",
        "drivers/redfish.py: _switch",
        frozenset({"Ownership"}),
        {"guard": RestartsInstead},
        power_cases.SWITCHED_OFF,
    ),
    Bug(
        "switches-on-too-soon",
        "A node is switched on again as soon as it is off.",
        "decide/power.py: is_on_due",
        frozenset({"PowerOrder"}),
        {"power": HastyPower, "guard": SwitchesOnTooSoon},
        power_cases.SWITCHED_OFF,
    ),
    Bug(
        "forgets-older-claims",
        "A node is switched on while a request to switch it off may still be on its way.",
        "decide/power.py: has_lapsed",
        frozenset({"PowerOrder"}),
        {"power": ForgetsOlderClaims},
        power_cases.HELD_UP,
    ),
    Bug(
        "switches-on-anybodys",
        "A node is switched on that somebody else has switched off.",
        "control/power.py: switch_on",
        frozenset({"PowerOrder"}),
        {"power": PowerForAnybody, "guard": OnForAnybody},
        power_cases.OFF_BY_ITSELF,
    ),
)
