"""One run over several processes, started by `torchrun` or `accelerate launch`: who writes, and who waits for whom."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

import torch

from stickymoe.core.errors import SettingError


class Ranks:
    """The processes of a run, as the launcher's environment tells them; entered while they work together."""

    def __init__(self) -> None:
        """Read the environment; nothing is begun yet.

        Raises:
            SettingError: The launcher asks for sharded weights.
        """
        if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
            message = "a run shares out its batches (DDP), not its weights (FSDP), which fit every device"
            raise SettingError(f"{message}; launch it without --use_fsdp")
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.is_first = int(os.environ.get("RANK", "0")) == 0

    def __enter__(self) -> Ranks:
        """Join the others: gloo on CPUs, NCCL on GPUs."""
        if self.count > 1:
            from accelerate import PartialState

            self._state = PartialState(cpu=not torch.cuda.is_available())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Part from the others; one that failed does not wait for them."""
        if self.count > 1 and error is None:
            self._state.destroy_process_group()

    def first_alone(self) -> AbstractContextManager[None]:
        """Let the first do what is in the block before the others, who then find it done."""
        return self._state.main_process_first() if self.count > 1 else nullcontext()

    def share(self, batch_size: int) -> int:
        """Return what each process takes of a batch.

        Raises:
            SettingError: It cannot be shared out evenly.
        """
        if batch_size % self.count:
            rule = f"a multiple of {self.count}, the number of processes"
            raise SettingError.broken("training.batch_size", rule, batch_size)
        return batch_size // self.count
