"""One egress port: shaper, marking, trimming, random loss, counters."""
