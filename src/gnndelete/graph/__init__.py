"""The graph side: what a deletion names, and the graph that remains without it."""
