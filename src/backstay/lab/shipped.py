"""The scenarios that come with Backstay: the YAML files in ``lab/scenarios``."""

from importlib import resources
from importlib.resources.abc import Traversable

from backstay.lab.scenario import BadScenario, Scenario, load

TOPICS = (
    "A node dies",
    "Volumes",
    "Volumes that DRBD replicates",
    "Power",
    "A node only seems to be dead",
    "People are wrong, late, or change their minds",
    "Nodes come back",
    "Several nodes at once",
    "Our own controllers fail",
    "The API and the control plane fail",
    "What is moved, and what is not",
    "Addresses",
    "Nodes in maintenance",
)
"""In the order in which the page has them."""


def shipped() -> tuple[Scenario, ...]:
    """All of them, by topic and then by name."""
    return tuple(sorted(map(find, names()), key=lambda each: (TOPICS.index(each.topic), each.name)))


def names() -> list[str]:
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in _directory().iterdir()
        if entry.name.endswith(".yaml")
    )


def find(name: str) -> Scenario:
    file = f"{name}.yaml"
    found = load(_directory().joinpath(file).read_text(encoding="utf-8"), file=file)
    if found.name != name:
        raise BadScenario(f"{file}: name: it is to be {name}, as the file's.")
    if found.topic not in TOPICS:
        raise BadScenario(f"{file}: topic: {found.topic!r} is none of lab/shipped.py.")
    return found


def _directory() -> Traversable:
    return resources.files("backstay.lab") / "scenarios"
