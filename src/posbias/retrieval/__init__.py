"""Retrieval by position: trials, their templates, and the statistics of the answers.

Nothing here knows torch or a model: `posbias.measurement` supplies what answers.
"""
