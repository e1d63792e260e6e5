"""A group of commands that load when they are used.

Each lives in a module of its name, in which a dash is an underscore. The help lines are given to
the group itself, so that listing the commands imports none of them.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """See the module. ``modules`` is what the names of the modules begin with. ``otherwise`` is
    the command that options without one are meant for, if one of them begins like these."""

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, str],
        modules: str = "backstay.cli.",
        otherwise: tuple[str, tuple[str, ...]] = ("", ()),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy)
        self._modules = modules
        self._otherwise = otherwise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        name = self._modules + cmd_name.replace("-", "_")
        command = importlib.import_module(name).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._lazy.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        command, beginnings = self._otherwise
        if args and args[0].startswith("-") and any(each.startswith(beginnings) for each in args):
            args = [command, *args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ctx.fail(
                f"{error.option_name} comes before any command. Name one first, such as: "
                f"{ctx.info_name} {self._usual} {error.option_name}"
            )

    @property
    def _usual(self) -> str:
        return self._otherwise[0] or next(iter(self._lazy))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            import difflib  # a wrong name is rare, and this import is not free

            near = difflib.get_close_matches(args[0], self._lazy, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"{args[0]!r} is not a command of {ctx.info_name}.{hint}")
        return super().resolve_command(ctx, args)
