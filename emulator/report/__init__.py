"""Showing a run: text, JSON, page, figures, comparison, live view."""
