"""The process group: PyTorch's collectives as calls of the agent, copied into shared memory and back.

Supported: all_reduce (sum, avg, product, min, max), all_gather, reduce_scatter, broadcast, send, recv, barrier, each with
their `async_op`; tensors on the CPU, dense. Everything else raises NotSupported with its name.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.futures import Future

from traffic.collective.calls import DTYPES, Signature
from traffic.errors import TrafficError
from traffic.torch.link import ADDRESS, AgentLink, Segment

NAME: Final = "fabriclab"

_REFUSED: Final = (
    "allgather_coalesced",
    "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce_coalesced",
    "all_to_all_single",
    "alltoall",
    "alltoall_base",
    "gather",
    "merge_remote_group",
    "monitored_barrier",
    "recv_anysource",
    "reduce",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "split_group",
)
_NAMES: Final = ("sum", "product", "min", "max")
_OTHER_OPS: Final = ("BAND", "BOR", "BXOR")


class NotSupported(RuntimeError):
    """A call that this backend does not have."""


class FabricWork(dist._Work):
    """A call under way; `wait` raises what went wrong."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Until the call is done. The run's own limits end a call that never is; no other timeout is kept."""
        self._future.wait()
        return True

    def get_future(self) -> Future[Any]:
        """Its result: the list of tensors."""
        return self._future

    def is_completed(self) -> bool:
        """Whether it is done."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether it is done and went well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What went wrong, if it is known."""
        if not self._future.done():
            return None
        try:
            self._future.wait()
        except RuntimeError as error:
            return error
        return None

    def result(self) -> Any:
        """The tensors."""
        return self._future.wait()


class FabricGroup(dist.ProcessGroup):
    """`members` are the program's ranks in the group's order; this process is `members[place]`."""

    def __init__(self, link: AgentLink, name: str, members: Sequence[int], place: int) -> None:
        super().__init__(place, len(members))
        self._link = link
        self._name = name
        self._members = list(members)
        self._place = place
        self._calls = itertools.count()
        self._messages: defaultdict[tuple[int, int, int], Iterator[int]] = defaultdict(itertools.count)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """As `get_backend` tells it."""
        return NAME

    def __repr__(self) -> str:
        return f"FabricGroup({self._name}, rank {self._place} of {len(self._members)})"

    # -- collectives ---------------------------------------------------------------------------------------------------

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> FabricWork:
        """Reduce one tensor over all ranks, in place."""
        (tensor,) = _one(tensors, "all_reduce")
        op, mean = _operation(opts, tensor, "all_reduce")
        flat = _flat(tensor, "all_reduce")

        def finish(memory: torch.Tensor) -> list[torch.Tensor]:
            _into(tensor, memory[: flat.numel()], divide=len(self._members) if mean else 1)
            return tensors

        return self._collective("allreduce", flat, op, finish)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> FabricWork:
        """The root's tensor at every rank, in place."""
        (tensor,) = _one(tensors, "broadcast")
        raw = _bytes(tensor)

        def finish(memory: torch.Tensor) -> list[torch.Tensor]:
            _into(tensor, memory[: raw.numel()].view(tensor.dtype))
            return tensors

        root = 0 if opts is None else int(opts.rootRank)
        return self._collective("broadcast", raw, "sum", finish, root=root)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> FabricWork:
        """Every rank's tensor at every rank; all must have one size."""
        (tensor,) = _one(inputs, "all_gather")
        (targets,) = _one(outputs, "all_gather")
        if any(out.numel() != tensor.numel() or out.dtype != tensor.dtype for out in targets):
            raise NotSupported(f"{NAME}: all_gather of tensors of different sizes or types is not supported")
        raw = _bytes(tensor)

        def finish(memory: torch.Tensor) -> list[list[torch.Tensor]]:
            for i, out in enumerate(targets):
                _into(out, memory[i * raw.numel() : (i + 1) * raw.numel()].view(out.dtype))
            return outputs

        return self._gathered(raw, finish)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> FabricWork:
        """The same into one tensor."""
        raw = _bytes(tensor)
        if output.numel() != tensor.numel() * len(self._members) or output.dtype != tensor.dtype:
            raise NotSupported(f"{NAME}: all_gather_into_tensor needs an output of world size times the input's size")

        def finish(memory: torch.Tensor) -> list[torch.Tensor]:
            _into(output, memory[: raw.numel() * len(self._members)].view(output.dtype))
            return [output]

        return self._gathered(raw, finish)

    def _gathered(self, raw: torch.Tensor, finish: Callable[[torch.Tensor], Any]) -> FabricWork:
        size = raw.numel()
        return self._collective(
            "all_gather", raw, "sum", finish, count=size * len(self._members), at=self._place * size
        )

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> FabricWork:
        """Rank r ends with the reduction of every rank's r-th tensor; all must have one size."""
        (output,) = _one(outputs, "reduce_scatter")
        (parts,) = _one(inputs, "reduce_scatter")
        if any(part.numel() != output.numel() or part.dtype != output.dtype for part in parts):
            raise NotSupported(f"{NAME}: reduce_scatter of tensors of different sizes or types is not supported")
        return self._scattered(output, torch.cat([_flat(part, "reduce_scatter") for part in parts]), opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> FabricWork:
        """The same from one tensor."""
        if tensor.numel() != output.numel() * len(self._members) or output.dtype != tensor.dtype:
            raise NotSupported(f"{NAME}: reduce_scatter_tensor needs an input of world size times the output's size")
        return self._scattered(output, _flat(tensor, "reduce_scatter"), opts)

    def _scattered(self, output: torch.Tensor, flat: torch.Tensor, opts: Any) -> FabricWork:
        op, mean = _operation(opts, output, "reduce_scatter")
        size = output.numel()

        def finish(memory: torch.Tensor) -> list[torch.Tensor]:
            mine = memory[self._place * size : (self._place + 1) * size]
            _into(output, mine, divide=len(self._members) if mean else 1)
            return [output]

        return self._collective("reduce_scatter", flat, op, finish)

    def barrier(self, opts: Any = None) -> FabricWork:
        """An all-reduce of one number a rank."""
        return self._collective("allreduce", torch.zeros(len(self._members)), "sum", lambda _: [])

    _allgather_base = all_gather_single  # the names before PyTorch 2.13
    _reduce_scatter_base = reduce_scatter_single

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> FabricWork:
        """One tensor to one rank of the group."""
        (tensor,) = _one(tensors, "send")
        return self._message(_bytes(tensor), self._place, dst, tag, lambda _: tensors)

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> FabricWork:
        """One tensor from one rank of the group."""
        (tensor,) = _one(tensors, "recv")
        raw = _bytes(tensor)

        def finish(memory: torch.Tensor) -> list[torch.Tensor]:
            _into(tensor, memory[: raw.numel()].view(tensor.dtype))
            return tensors

        return self._message(raw, src, self._place, tag, finish)

    def _message(
        self, raw: torch.Tensor, src: int, dst: int, tag: int, finish: Callable[[torch.Tensor], Any]
    ) -> FabricWork:
        number = next(self._messages[src, dst, tag])
        signature = Signature("send", "send", 2, raw.numel(), "uint8")
        members = [self._members[src], self._members[dst]]
        return self._start(f"{src}>{dst} {tag} {number}", members, int(self._place == dst), signature, raw, 0, finish)

    # -- what they share -----------------------------------------------------------------------------------------------

    def _collective(
        self,
        kind: str,
        flat: torch.Tensor,
        op: str,
        finish: Callable[[torch.Tensor], Any],
        *,
        root: int = 0,
        count: int | None = None,
        at: int = 0,
    ) -> FabricWork:
        """Call `kind` over the group with `flat` placed `at` elements into a vector of `count`."""
        total = flat.numel() if count is None else count
        dtype = str(flat.dtype).removeprefix("torch.")
        signature = Signature(kind, self._link.algorithms[kind], len(self._members), total, dtype, op, root)
        return self._start(str(next(self._calls)), self._members, self._place, signature, flat, at, finish)

    def _start(
        self,
        seq: str,
        members: Sequence[int],
        place: int,
        signature: Signature,
        flat: torch.Tensor,
        at: int,
        finish: Callable[[torch.Tensor], Any],
    ) -> FabricWork:
        future: Future[Any] = Future()
        if len(members) == 1 or not signature.count:
            future.set_result(finish(flat))
            return FabricWork(future)
        segment = self._link.segment(self._link.bytes_for(signature))
        memory = _view(segment, flat.dtype, signature.count)
        memory[at : at + flat.numel()].copy_(flat)

        def done(used: Segment, error: TrafficError | None) -> None:
            if error is None:
                future.set_result(finish(memory))
                self._link.release(used)
            else:
                future.set_exception(RuntimeError(f"{NAME}: {error}"))

        self._link.call(self._name, seq, members, place, signature, segment, done)
        return FabricWork(future)


def _refuse(name: str) -> Callable[..., Any]:
    def refused(self: FabricGroup, *_: Any, **__: Any) -> Any:
        raise NotSupported(
            f"the backend {NAME} does not support {name}; it has all_reduce, all_gather, reduce_scatter, broadcast, send, recv, barrier"
        )

    refused.__name__ = name
    refused.__doc__ = f"Not supported: raises NotSupported with its name, {name}."
    return refused


for _name in _REFUSED:
    setattr(FabricGroup, _name, _refuse(_name))


def _one(items: Sequence[Any], name: str) -> Sequence[Any]:
    if len(items) != 1:
        raise NotSupported(f"{NAME}: {name} of {len(items)} tensors at once is not supported")
    return items


def _plain(tensor: torch.Tensor, name: str) -> torch.Tensor:
    if tensor.device.type != "cpu" or tensor.is_sparse:
        kind = "sparse tensors" if tensor.is_sparse else f"tensors on {tensor.device}"
        raise NotSupported(f"{NAME}: {name} of {kind} is not supported")
    return tensor.detach().contiguous().view(-1)


def _flat(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The elements in a row, of a type that can be reduced."""
    if str(tensor.dtype).removeprefix("torch.") not in DTYPES:
        raise NotSupported(f"{NAME}: {name} of {tensor.dtype} is not supported, only of {', '.join(DTYPES)}")
    return _plain(tensor, name)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes in a row: what is only copied may have any type."""
    flat = _plain(tensor, "a copy")
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)


def _into(target: torch.Tensor, values: torch.Tensor, *, divide: int = 1) -> None:
    with torch.no_grad():
        target.copy_(values.view(target.shape))
        if divide != 1:
            target.div_(divide)


def _view(segment: Segment, dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.frombuffer(segment.memory, dtype=dtype, count=count)


def _operation(opts: Any, tensor: torch.Tensor, name: str) -> tuple[str, bool]:
    """The reduction's name, and whether the sum becomes a mean."""
    ops = dist.ReduceOp
    wanted = ops.SUM if opts is None else opts.reduceOp
    if wanted == ops.AVG:
        if not tensor.is_floating_point():
            raise NotSupported(f"{NAME}: {name} with AVG of {tensor.dtype} is not supported")
        return "sum", True
    for known in _NAMES:
        if wanted == getattr(ops, known.upper()):
            return known, False
    other = next((o for o in _OTHER_OPS if hasattr(ops, o) and wanted == getattr(ops, o)), "this operation")
    raise NotSupported(f"{NAME}: {name} with {other} is not supported, only sum, avg, product, min, max")


@lru_cache(maxsize=1)
def _link(address: str, rank: int) -> AgentLink:
    """The process's one link to its agent."""
    return AgentLink(address, rank)


def _create(options: Any, _: Any = None) -> FabricGroup:
    """What `init_process_group` and `new_group` call."""
    address = os.environ.get(ADDRESS)
    if address is None:
        raise RuntimeError(
            f"the backend {NAME} needs agents: start the program with `fabriclab exec TOPO --transport roce|mrc -- COMMAND`"
        )
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    link = _link(address, int(os.environ["RANK"]))
    return FabricGroup(link, str(options.group_id), members, int(options.group_rank))


def register() -> None:
    """Make the backend known to PyTorch; once is enough, again does no harm."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
