"""The hosts: what crosses the network."""
