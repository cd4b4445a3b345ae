"""Regrow: new weights, drawn afresh, at a few percent of the epochs of a training.

`method` says what is tried in which order, `teacher` what the old model may still say meanwhile, `acceptance` how a result is
judged on validation data.
"""
