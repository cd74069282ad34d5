"""The network: what is built, observed and judged."""


def compute(seconds: float = 0.0) -> None:
    """Say that the program computes for `seconds`; see `emulator.exec.compute`. A no-op outside `fabriclab exec`."""
    from emulator.exec.compute import compute as tell

    tell(seconds)
