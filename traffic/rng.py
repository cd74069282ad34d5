"""Seeded randomness with no hidden source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""

from __future__ import annotations

from zlib import crc32

_MASK = (1 << 64) - 1


class Rng:
    """A stream of pseudo-random integers fixed by its seed and labels; seed 0 is a seed like any other."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, *labels: object) -> None:
        self._state = (
            seed * 0x9E3779B97F4A7C15 + crc32("/".join(map(str, labels)).encode()) * 0xD1B54A32D192ED03
        ) & _MASK
        self.next64()

    def next64(self) -> int:
        """The next 64-bit value."""
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return z ^ z >> 31

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return (self.next64() >> 11) * bound >> 53

    def uniform(self) -> float:
        """A float in [0, 1)."""
        return (self.next64() >> 11) / (1 << 53)

    def shuffled(self, items: range | list[int]) -> list[int]:
        """A permutation of `items` (Fisher-Yates)."""
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out
