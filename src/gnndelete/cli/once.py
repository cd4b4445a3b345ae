"""Commands that do not take twice what names data to forget, unless an option says that it can be repeated."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from gnndelete.cli.asking import OPTIONS


class Once(TyperCommand):
    """Refuses an option of a request that takes one value and is given twice: the first would be dropped without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        order: list[Any] = self.make_parser(ctx).parse_args(args=list(args))[2]
        seen: set[str] = set()
        for given in order:
            if given.name in OPTIONS and not given.multiple and given.name in seen:
                raise typer.BadParameter(
                    "it is given twice and takes one value; give it once (a file can name many), or run the command twice",
                    ctx=ctx,
                    param=given,
                )
            seen.add(str(given.name))
        return super().parse_args(ctx, args)
