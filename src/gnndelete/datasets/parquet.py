"""Parquet tables in blocks of rows, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnndelete.datasets.tables import BLOCK, Block, Problems, Table
from gnndelete.errors import GraphError, some


@contextmanager
def open_parquet(path: Path) -> Iterator[Table]:
    """Open a Parquet file; its rows are counted from 1."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise GraphError(
            f"reading '{path}' needs pyarrow; install it with: pip install 'gnndelete[parquet]', or give a CSV file"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            again = sorted({name for name in names if names.count(name) > 1})
            if again:
                raise GraphError(
                    f"'{path}' has several columns named {some(map(repr, again))}; make their names distinct"
                )
            yield Table(str(path), tuple(names), _blocks(file), Problems(str(path), "row"))
    except (pyarrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GraphError(f"the table '{path}' cannot be read ({why}); check the file") from None


def _blocks(file: Any) -> Iterator[Block]:
    first = 1
    for batch in file.iter_batches(batch_size=BLOCK):
        columns = {name: _cells(batch.column(place)) for place, name in enumerate(batch.schema.names)}
        if batch.num_rows:
            yield Block(range(first, first + batch.num_rows), columns)
        first += batch.num_rows


def _cells(column: Any) -> Sequence[Any]:
    """Numbers as an array where none is missing; everything else as Python values, None where missing."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if (types.is_integer(column.type) or types.is_floating(column.type)) and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()
