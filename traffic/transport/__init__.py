"""Transports as pure state machines: packets and `now` in; packets, timers and events out."""
