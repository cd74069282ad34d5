"""Train a small model with DistributedDataParallel on made-up data, and print the loss of every step.

fabriclab exec topologies/leaf-spine-2x2x4.yaml --ranks 4 -- python examples/ddp.py
fabriclab exec topologies/leaf-spine-2x2x4.yaml --ranks 4 --transport mrc -- python examples/ddp.py fabriclab
python examples/ddp.py single            # one process, the same data: the losses agree within float tolerance
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import emulator

STEPS, BATCH, WIDTH, RATE = 10, 64, 256, 0.05

backend = sys.argv[1] if len(sys.argv) > 1 else "gloo"
if backend == "fabriclab":
    import traffic.torch  # noqa: F401 - registers the backend
if backend != "single":
    dist.init_process_group(backend)
rank, world = (dist.get_rank(), dist.get_world_size()) if backend != "single" else (0, 1)

torch.manual_seed(1)  # the same model and the same data in every process; each takes its share of a batch
model = torch.nn.Sequential(
    torch.nn.Linear(WIDTH, WIDTH),
    torch.nn.Tanh(),
    torch.nn.Linear(WIDTH, WIDTH),
    torch.nn.Tanh(),
    torch.nn.Linear(WIDTH, 1),
)
data = torch.randn(STEPS, BATCH, WIDTH)
wanted = data.mean(dim=2, keepdim=True).sin()
net = model if backend == "single" else DistributedDataParallel(model)

for step in range(STEPS):
    emulator.compute(0.002)  # with --compute fixed a step computes 2 ms; without, only the network takes time
    mine = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    loss = torch.nn.functional.mse_loss(net(data[step, mine]), wanted[step, mine])
    model.zero_grad()
    loss.backward()  # DistributedDataParallel averages the gradients over the ranks meanwhile
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad
    total = loss.detach() / world
    if backend != "single":
        dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.7f}", flush=True)
if backend != "single":
    dist.destroy_process_group()
