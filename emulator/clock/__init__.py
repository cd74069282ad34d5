"""Time: the real clock, and the guest kernel whose clock moves only when every task waits."""
