"""JODIE: coevolving vectors of two sides."""

from gnndelete.methods.jodie.method import JODIE

__all__ = ["JODIE"]
