"""What runs in the guest against Linux's own Soft-RoCE."""
