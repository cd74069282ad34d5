"""The network: what is built, observed, judged."""
