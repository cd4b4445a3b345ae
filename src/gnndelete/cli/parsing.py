"""How command lines are read: commands and groups whose help shows flags as flags, and whose errors name value and way out."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from gnndelete.cli.asking import OPTIONS
from gnndelete.errors import some, unknown

#: The parser's own error; its home differs between versions of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Verb(TyperCommand):
    """A command. It does not take twice what names data to forget, unless an option says that it can be repeated."""

    def get_params(self, ctx: Any) -> Any:
        return _flagged(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        _refuse_twice(order, ctx)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            _explain(error, given, self.help or "")
            raise


class Verbs(TyperGroup):
    """A group of commands. A name that it does not have is refused with the closest one, or with all of them."""

    def get_params(self, ctx: Any) -> Any:
        return _flagged(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(unknown("there is no command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


def _flagged(params: list[Any]) -> list[Any]:
    """Options of which some take no value: the help would show these as if they took one."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _refuse_twice(order: list[Any], ctx: Any) -> None:
    """Refuse an option of a request that takes one value and is given twice: the first would be dropped without a word."""
    seen: set[str] = set()
    for given in order:
        if given.name in OPTIONS and not given.multiple and given.name in seen:
            raise typer.BadParameter(
                "it is given twice and takes one value; give it once (a file can name many), or run the command twice",
                ctx=ctx,
                param=given,
            )
        seen.add(str(given.name))


def _explain(error: Any, given: dict[str, Any], about: str) -> None:
    """Add to the parser's error what was given, or, where something is missing, an example of the command."""
    if not error.message:  # something is missing, which the parser says itself
        example = re.search(r"\[bold\](.+?)\[/\]", about)
        error.message = f"For example: {example[1]}" if example else ""
        return
    value = given.get(getattr(error.param, "name", ""))
    shown = some(f"'{each}'" for each in (value if isinstance(value, list) else [value]))
    said = error.message.removeprefix("Value error, ").partition(", unable to parse")[0].rstrip(".")
    error.message = said if value is None or shown in said else f"{said[:1].lower()}{said[1:]} (got {shown})"
