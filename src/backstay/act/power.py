"""The power of a machine, switched through its device. Neither verb says what became of it: that
has to be seen."""

from backstay.drivers.power import PowerDevices, PowerFailed


async def switch_off(devices: PowerDevices, node: str, *, not_after: float) -> str:
    """Why the device could not be asked, in words; empty if it was."""
    try:
        await devices.switch_off(node, not_after=not_after)
    except PowerFailed as error:
        return str(error)
    return ""


async def switch_on(devices: PowerDevices, node: str, *, not_after: float) -> str:
    """The same, the other way."""
    try:
        await devices.switch_on(node, not_after=not_after)
    except PowerFailed as error:
        return str(error)
    return ""
