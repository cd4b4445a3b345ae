"""Experiments as data, the runner that works through them, and the tables and figures of what it found."""
