"""Experiments: what to run, how it is resolved, run in either kernel, and finished into results."""
