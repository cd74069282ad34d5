"""Congestion control: one algorithm per module, pure state machines told what happened and when."""
