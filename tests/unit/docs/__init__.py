"""The pages: built, up to date, no word before its meaning."""
