"""GNNDelete: a linear operator behind each graph layer, solved in closed form."""

from gnndelete.methods.gnndelete.method import GNNDelete

__all__ = ["GNNDelete"]
