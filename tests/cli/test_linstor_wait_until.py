"""``linstor-wait-until api-online``, as an init container calls it."""

import asyncio
import os
import sys
from pathlib import Path

from backstay.seam.real import open_seams
from backstay.sim.linstor.served import Lab, serving

WAIT = Path(sys.executable).parent / "linstor-wait-until"


async def wait(*arguments: str, controllers: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        WAIT, *arguments,
        env={"PATH": os.environ["PATH"], "LS_CONTROLLERS": controllers},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_it_ends_when_one_of_the_controllers_answers() -> None:
    lab = Lab("n1")
    async with open_seams() as seams, serving(seams.serve, lab.controller()) as linstor:
        code, out, err = await wait("api-online", controllers=f"127.0.0.1:1,{linstor.url}")
    lab.close()
    assert (code, err) == (0, "")
    assert out.startswith("LINSTOR 1.")


async def test_a_condition_that_there_is_not_is_one_sentence() -> None:
    code, _, err = await wait("node-online", controllers="")
    assert code == 2
    assert "api-online" in err.splitlines()[-1]
