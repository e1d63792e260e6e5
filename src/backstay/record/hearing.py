"""How LINSTOR's events are heard, in words for whoever asks a controller how it stands."""

from backstay.drivers.linstor.stream import Promotions


def hearing(promotions: Promotions, now: float) -> str:
    """Without names, and so without what is wrong: that is in the status."""
    if not promotions.connected:
        silent = since(promotions.last_heard, now)
        for_long = "never were" if silent == float("inf") else f"have not been for {silent:.0f} s"
        return f"LINSTOR's events are not heard, and {for_long}."
    told = since(promotions.last_renewed, now)
    ago = "not been told yet" if told == float("inf") else f"last been told {told:.0f} s ago"
    return f"LINSTOR's events are heard; the state of everything has {ago}."


def since(moment: float | None, now: float) -> float:
    return float("inf") if moment is None else now - moment
