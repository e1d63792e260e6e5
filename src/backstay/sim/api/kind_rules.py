"""The rules of the kinds that have some of their own, one class each, in one table.

To teach the embedded API a new habit of a kind, write its class here and add it to the table.
"""

from functools import lru_cache

from backstay.sim.api.kinds import KindInfo
from backstay.sim.api.rules import KindRules

_RULES: dict[str, type[KindRules]] = {}


@lru_cache(maxsize=1024)
def rules_for(info: KindInfo) -> KindRules:
    return _RULES.get(info.storage, KindRules)(info)
