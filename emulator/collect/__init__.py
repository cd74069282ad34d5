"""Samples, tables and captures: what was seen."""
