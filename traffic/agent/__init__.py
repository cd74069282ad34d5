"""Agents: sockets in the hosts' namespaces, one event loop, and the transports that run over them."""
