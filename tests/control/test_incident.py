"""An incident that is being written."""

from backstay.apis.backstay import IncidentSpec
from backstay.control.incident import OpenIncident
from backstay.model.incident import Step
from backstay.record.incidents import IncidentBook
from backstay.seam.system import SystemRng
from backstay.sim.clock import LoopClock
from tests.record.rig import RecordScene
from tests.support.virtual import virtual_time

NEVER = 1e9


@virtual_time
async def test_a_claim_on_a_device_that_is_short_does_not_hide_a_longer_one() -> None:
    scene = RecordScene()
    await scene.begin()
    book = IncidentBook(scene.client, wall=LoopClock(), rng=SystemRng(1))
    row = await book.open(IncidentSpec("n1", "u1", "b1"), not_after=NEVER)
    incident = OpenIncident(book, row)
    for seconds in (25.0, 13.0):
        await incident.claim_power(
            Step.POWER_OFF, "power/n1/b1", seconds=seconds, epoch=3, not_after=NEVER
        )
    status = (await book.read(row.key)).status
    assert status.power is not None
    assert (status.power.offs, status.power.seconds, status.power.epoch) == (2, 25.0, 3)
    assert status.intent is not None
    assert (status.intent.step, status.intent.pods) == (Step.POWER_OFF, ("power/n1/b1",))
