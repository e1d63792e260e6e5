"""What LINSTOR's controller hears of its satellites, and when."""

from backstay.sim.linstor.served import Lab


async def test_a_satellite_that_falls_silent_before_it_has_told_anything_is_waited_for() -> None:
    lab = Lab("n1", "n2", "n3")
    lab.define("data")
    controller = lab.controller()
    connects_at = controller.look(0.0)
    assert connects_at is not None
    tells_at = controller.look(connects_at)
    assert tells_at is not None
    lab.away.update(lab.database.nodes)
    gives_up_at = controller.look(tells_at)
    assert gives_up_at is not None
    assert gives_up_at > tells_at
    lab.away.clear()
    controller.look(gives_up_at)
    assert all(controller.sight("data", node) for node in lab.database.nodes)
