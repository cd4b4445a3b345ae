"""Your own graph from node and edge tables whose ids are names."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from gnndelete.datasets.assembly import Columns, Missing, NamedGraph, build
from gnndelete.datasets.tables import open_table


def from_tables(
    edges: str | PathLike[str],
    nodes: str | PathLike[str] | None = None,
    *,
    source: str = "source",
    target: str = "target",
    relation: str | None = None,
    node_id: str = "id",
    features: Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = None,
    edge_features: Sequence[str] | None = None,
    undirected: bool = False,
    missing: Missing = "error",
    delimiter: str | None = None,
) -> NamedGraph:
    """Read a graph from an edge table and, where there is one, a node table: CSV, TSV, either gzipped, or Parquet.

    - Ids are text, such as ``user:4711``. Nodes come in the order of the node table, else as the edges name them.
    - ``relation``, ``label`` and ``weight`` name columns; by default the columns of just these names, where they exist.
    - ``features`` (columns of ``x``) and ``edge_features`` (of ``edge_attr``) are by default all other columns of numbers;
      every cell of theirs must be a finite number.
    - Labels are names or whole numbers; ``classes`` has them in order, and an empty cell is a node without a label (-1),
      as ``nan`` is where all other labels are numbers.
    - ``undirected=True`` adds the reverse of every edge. An edge that is listed again with the same values counts once;
      with another weight or other features it stays as a parallel edge, and deleting it deletes all its copies.
    - Ids that only edges name are an error, or with ``missing="zeros"`` nodes with features of zero and no label.

    Rows that cannot be used are all counted and the first 20 named by their line.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("id,age,label\\nuser:4711,31,a\\nuser:12,40,b\\nitem:7,0,\\n")
    >>> _ = (folder / "edges.csv").write_text("source,target\\nuser:4711,item:7\\nuser:12,item:7\\n")
    >>> graph = from_tables(folder / "edges.csv", folder / "nodes.csv", undirected=True)
    >>> graph
    NamedGraph(Data(edge_index=[2, 4], x=[3, 1], y=[3]), ids=IdMap('user:4711', 'user:12', 'item:7'))
    >>> graph.classes, graph.data.y.tolist()
    (('a', 'b'), [0, 1, -1])
    """
    columns = Columns(source, target, relation, node_id, features, label, weight, edge_features)
    opened = None if nodes is None else open_table(Path(nodes), [node_id], delimiter)
    keys = [source, target, relation or "relation"]
    return build(open_table(Path(edges), keys, delimiter), opened, columns, undirected, missing)
