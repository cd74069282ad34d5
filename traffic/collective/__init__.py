"""Collectives and traffic patterns: who sends which bytes when, and how the result is checked. Pure."""
