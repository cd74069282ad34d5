"""Benchmarks: what this machine can carry, always as a ratio to a baseline of the same run."""
