"""Training: whole graphs and mini-batches."""

from gnndelete.training.loop import train

__all__ = ["train"]
