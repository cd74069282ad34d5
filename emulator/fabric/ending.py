"""The signals that end a run: each becomes a KeyboardInterrupt, so that what was made is taken away on the way out."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndingSignals:
    """Takes SIGTERM and SIGHUP in the main thread, and gives them back to whom they belonged."""

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, Any] = {}

    def take(self) -> None:
        """From now on they interrupt as Ctrl-C does."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                # Ignored means that somebody (nohup) wants it so.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, _end_block)

    def give_back(self) -> None:
        """As they were; harmless when nothing was taken."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def __enter__(self) -> EndingSignals:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


def _end_block(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
