"""GraphEraser: one model per shard of the graph."""

from gnndelete.methods.grapheraser.method import GraphEraser

__all__ = ["GraphEraser"]
