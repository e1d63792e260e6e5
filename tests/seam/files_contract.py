"""What every ``Files`` promises, on a disk or in memory. See ``backstay.seam.files``."""

import pytest

from backstay.seam.files import Files


class FilesContract:
    """Subclasses provide ``files`` and ``root``, a directory that is theirs."""

    async def test_what_was_written_is_read(self, files: Files, root: str) -> None:
        await files.write(f"{root}/a", b"first, and longer")
        await files.write(f"{root}/a", b"second")
        assert await files.read(f"{root}/a") == b"second"

    async def test_directories_are_made_where_needed(self, files: Files, root: str) -> None:
        await files.write(f"{root}/some/deep/place", b"x")
        await files.append(f"{root}/other/deep/place", b"y")
        assert await files.names(root) == ["other", "some"]
        assert await files.names(f"{root}/some/deep") == ["place"]

    async def test_appending_adds_at_the_end(self, files: Files, root: str) -> None:
        for line in (b"one\n", b"two\n", b"three\n"):
            await files.append(f"{root}/log", line)
        assert await files.read(f"{root}/log") == b"one\ntwo\nthree\n"

    async def test_names_are_sorted(self, files: Files, root: str) -> None:
        for name in ("b", "c", "a"):
            await files.write(f"{root}/{name}", b"")
        assert await files.names(root) == ["a", "b", "c"]

    async def test_what_is_removed_is_gone_and_may_be_removed_again(
        self, files: Files, root: str
    ) -> None:
        await files.write(f"{root}/a", b"x")
        await files.remove(f"{root}/a")
        await files.remove(f"{root}/a")
        assert await files.names(root) == []
        with pytest.raises(FileNotFoundError):
            await files.read(f"{root}/a")

    async def test_what_is_not_there_is_not_found(self, files: Files, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            await files.read(f"{root}/nothing")
        with pytest.raises(FileNotFoundError):
            await files.info(f"{root}/nothing")
        with pytest.raises(FileNotFoundError):
            await files.names(f"{root}/nowhere")

    async def test_a_change_shows_in_the_info(self, files: Files, root: str) -> None:
        await files.write(f"{root}/a", b"12345")
        first = await files.info(f"{root}/a")
        assert first == await files.info(f"{root}/a")
        await files.write(f"{root}/a", b"54321")
        second = await files.info(f"{root}/a")
        await files.append(f"{root}/a", b"6")
        third = await files.info(f"{root}/a")
        assert (first.size, second.size, third.size) == (5, 5, 6)
        assert len({first, second, third}) == 3
        assert second.inode == third.inode
