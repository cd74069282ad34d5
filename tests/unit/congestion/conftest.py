"""Networks whose numbers come out round."""

import pytest

from traffic.congestion.base import PathInfo


@pytest.fixture
def forty() -> PathInfo:
    """The DCQCN paper's link speed, 1 KB packets."""
    return PathInfo(40_000_000_000, 10_000, 1000, 1000)


@pytest.fixture
def reference() -> PathInfo:
    """uet-htsim's reference network: 100 Gbit/s × 12 us = 150,000 bytes."""
    return PathInfo(100_000_000_000, 12_000, 4096, 4096, trimming=True)
