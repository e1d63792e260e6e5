"""Resource versions: which of two is older.

They are decimal numbers of any length, compared without being turned into numbers.
"""


def is_older(version: str, seen: str) -> bool:
    """False where either is no number: such a version says nothing."""
    # Most is heard twice: in an answer and from a watch.
    if version == seen:
        return False
    digits, seen_digits = len(version), len(seen)
    # As a rule it is not, and then there is no need to know whether they are numbers.
    if digits > seen_digits or (digits == seen_digits and version >= seen):
        return False
    return version.isdecimal() and seen.isdecimal()
