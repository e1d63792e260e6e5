"""Resource versions: which of two is older.

They are decimal numbers of any length, compared without being turned into numbers.
"""


def is_older(version: str, seen: str) -> bool:
    """False where either is no number: such a version says nothing."""
    older = version < seen if len(version) == len(seen) else len(version) < len(seen)
    return older and version.isdecimal() and seen.isdecimal()
