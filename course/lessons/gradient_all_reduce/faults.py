"""One rank pauses before one call, and nobody says which rank, or which call."""

import random
import time

import torch.distributed as dist

SECONDS = 0.06
"""How long the late rank pauses, in every step."""


class Fault:
    """A secret: which rank of `world_size` pauses, and before which call; random unless given.

    Never before call 0, in which ranks that share CPUs wait for each other anyway.
    """

    def __init__(
        self, world_size: int, calls: int, *, rank: int | None = None, call: int | None = None
    ):
        self._rank = random.randrange(world_size) if rank is None else rank
        self._call = random.randrange(1, calls) if call is None else call

    def __repr__(self) -> str:
        return "a fault on one rank, before one call; .reveal(rank, call) judges your answer"

    def strike(self, call: int) -> None:
        """Pause, if this rank is the one and this call is the one; before every call."""
        if (dist.get_rank(), call) == (self._rank, self._call):
            time.sleep(SECONDS)

    def is_on(self, rank: int, call: int) -> bool:
        """Tell whether it is this rank, and this call."""
        return (rank, call) == (self._rank, self._call)

    def reveal(self, rank: int | None, call: int | None) -> str:
        """Say whether an answer is right, and what is; without an answer, ask for one."""
        if rank is None or call is None:
            return "Still sealed. Put your answer into my_rank and my_call, and run this again."
        hits = {"the rank": rank == self._rank, "the call": call == self._call}
        verdict = ", ".join(f"{what} {'right' if hit else 'wrong'}" for what, hit in hits.items())
        return f"It was rank {self._rank}, before call {self._call}. You had {verdict}."
