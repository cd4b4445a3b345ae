"""Benchmarks: experiment files, the runner that works through their cells, and reports of the results.

An experiment (`experiment`) consists of `cells`. The `runner` gives the missing ones to `executors`, which make their
`material` and `measure` them; rows go to the `results_file`, and `report` makes pages of them.
"""
