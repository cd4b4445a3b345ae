"""Scores: ranking, the unseen test, and matching of edges."""
