"""Real programs: how they end, what they say, and that nothing of them stays behind."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from backstay.seam.errors import ExecNotFound, ExecTimedOut
from backstay.seam.exec import Command, Completed
from backstay.seam.processes import SubprocessExec

ENV = {"PATH": os.environ["PATH"]}


async def run(*argv: str, timeout: float = 20.0, **options: object) -> Completed:
    options = {"env": ENV, **options}
    return await SubprocessExec().run(Command(argv=argv, timeout=timeout, **options))  # type: ignore[arg-type]


async def python(code: str, *, timeout: float = 20.0, **options: object) -> Completed:
    return await run(sys.executable, "-c", code, timeout=timeout, **options)


def survivors(mark: Path) -> list[str]:
    """Processes that were started, by whomever, with ``mark`` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if f"MARK={mark}".encode() in environment:
            found.append(process.name)
    return found


async def all_gone(mark: Path) -> bool:
    """Whether nobody is left, after they have had a moment to go."""
    for _ in range(500):
        if not survivors(mark):
            return True
        await asyncio.sleep(0.01)
    return False


class TestAnswers:
    async def test_output_and_code_come_back(self) -> None:
        done = await run("/bin/sh", "-c", "echo out; echo err >&2; exit 3")
        assert done == Completed(3, b"out\n", b"err\n")

    async def test_a_signal_is_a_negative_code(self) -> None:
        assert (await run("/bin/sh", "-c", "kill -9 $$")).code == -9

    async def test_a_name_is_looked_up_in_the_path_that_was_given(self, tmp_path: Path) -> None:
        program = tmp_path / "fence_test"
        program.write_text("#!/bin/sh\necho found\n")
        program.chmod(0o755)
        assert (await run("fence_test", env={"PATH": str(tmp_path)})).stdout == b"found\n"

    async def test_the_environment_is_exactly_what_was_given(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET", "inherited")
        done = await run("/usr/bin/env", env={"ONLY": "this"})
        assert done.stdout == b"ONLY=this\n"

    async def test_input_arrives_and_ends(self) -> None:
        assert (await run("/bin/cat", stdin=b"secret=1\n")).stdout == b"secret=1\n"

    async def test_without_input_the_program_meets_the_end_at_once(self) -> None:
        assert (await run("/bin/cat")).stdout == b""

    async def test_large_input_and_large_output_do_not_block_each_other(self) -> None:
        data = bytes(range(256)) * 16_000
        done = await run("/bin/cat", stdin=data, max_output=len(data))
        assert done.stdout == data

    async def test_a_program_that_does_not_read_its_input_is_no_failure(self) -> None:
        done = await run("/bin/sh", "-c", "exec <&-; echo done", stdin=bytes(5_000_000))
        assert done == Completed(0, b"done\n", b"")

    async def test_output_beyond_the_limit_is_read_and_dropped(self) -> None:
        code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 3_000_000)"
        done = await python(code, max_output=1000)
        assert done == Completed(0, b"x" * 1000, b"y" * 1000)

    async def test_many_run_at_the_same_time(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run("/bin/echo", str(n))) for n in range(20)]
        assert [task.result().stdout for task in tasks] == [b"%d\n" % n for n in range(20)]


class TestNotFound:
    async def test_a_program_that_is_not_there(self) -> None:
        with pytest.raises(ExecNotFound, match="no-such-plugin cannot be executed: No such file"):
            await run("no-such-plugin")

    async def test_a_file_that_may_not_be_executed(self, tmp_path: Path) -> None:
        program = tmp_path / "plain"
        program.write_text("#!/bin/sh\n")
        with pytest.raises(ExecNotFound, match="plain cannot be executed: Permission denied"):
            await run(str(program))

    async def test_a_file_that_is_not_a_program(self, tmp_path: Path) -> None:
        program = tmp_path / "garbage"
        program.write_bytes(b"\x00\x01\x02")
        program.chmod(0o755)
        with pytest.raises(ExecNotFound, match="Exec format error"):
            await run(str(program))


class TestTheEnd:
    """What is killed is killed with its children."""

    async def run_family(self, mark: Path, *, timeout: float = 20.0) -> None:
        env = {**ENV, "MARK": str(mark)}
        await run("/bin/sh", "-c", "sleep 600 & sleep 600 & wait", timeout=timeout, env=env)

    async def test_time_that_is_up_ends_the_program_and_its_children(self, tmp_path: Path) -> None:
        with pytest.raises(ExecTimedOut, match="/bin/sh did not end within 1 s and was killed"):
            await self.run_family(tmp_path, timeout=1.0)
        assert await all_gone(tmp_path)

    async def test_cancellation_ends_the_program_and_its_children(self, tmp_path: Path) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run_family(tmp_path))
            for _ in range(500):
                await asyncio.sleep(0.01)
                if len(survivors(tmp_path)) == 3:
                    break
            task.cancel()
        assert task.cancelled()
        assert await all_gone(tmp_path)

    @pytest.mark.parametrize("turns", range(8))
    async def test_cancellation_at_any_moment_of_the_start_leaves_nothing_behind(
        self, tmp_path: Path, turns: int
    ) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run_family(tmp_path))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert await all_gone(tmp_path)

    async def test_a_program_that_ignores_polite_signals_is_killed_all_the_same(self) -> None:
        with pytest.raises(ExecTimedOut):
            await run("/bin/sh", "-c", "trap '' TERM INT HUP; sleep 600 & wait", timeout=0.5)

    async def test_a_child_left_behind_with_our_pipe_is_not_waited_for(self) -> None:
        done = await run("/bin/sh", "-c", "sleep 5 & echo $!; exit 0", timeout=4.0)
        assert done.code == 0
        os.kill(int(done.stdout), 9)

    async def test_argv_and_input_are_in_no_error(self) -> None:
        with pytest.raises(ExecTimedOut) as caught:
            await run("/bin/sleep", "600", timeout=0.05, stdin=b"s3cret", env={"T": "s3cret"})
        assert "s3cret" not in str(caught.value)


async def test_at_the_terminal_only_the_output_is_ours(capfd: pytest.CaptureFixture[str]) -> None:
    done = await run("/bin/sh", "-c", "echo ours; echo theirs >&2", terminal=True)
    assert done == Completed(0, b"ours\n", b"")
    assert capfd.readouterr().err == "theirs\n"


async def test_at_the_terminal_the_program_shares_our_process_group() -> None:
    code = "import os; print(os.getpgrp())"
    here, elsewhere = await python(code, terminal=True), await python(code)
    assert int(here.stdout) == os.getpgrp()
    assert int(elsewhere.stdout) != os.getpgrp()


async def test_at_the_terminal_time_is_up_too() -> None:
    with pytest.raises(ExecTimedOut):
        await run("/bin/sleep", "600", timeout=0.1, terminal=True)
