"""The packet loop as machine code: building it from the same source."""
