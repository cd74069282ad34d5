"""The `torch.distributed` backend "fabriclab": importing this module registers it.

    import traffic.torch
    torch.distributed.init_process_group("fabriclab")

It works in a program that `fabriclab exec --transport roce` (or `mrc`) has started: tensors go to the agent by shared memory
and to the other ranks as RoCE v2 or MRC packets. It needs PyTorch, which `pip install fabriclab[torch]` brings.
"""

from __future__ import annotations

from traffic.torch.group import NAME, FabricGroup, register

__all__ = ["NAME", "FabricGroup", "register"]

register()
