"""Families without an adapter: the common contract is tried, and what it says is held against the experts' weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from stickymoe.capture.families.family import Decision, Family
from stickymoe.capture.gates import GATES, misfit
from stickymoe.core.errors import CaptureError

# As far as weights in bfloat16 may be off
_TOLERANCE = 2e-2


class UnknownFamily(Family):
    """Finds out at the first pass which gates the experts' weights are made of, and refuses where none fits."""

    gate: str = ""
    note: str = "no adapter: what was found fits the weights that the experts receive"

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Take the one argument of the experts that can be ids, and the one that can be weights."""
        return _one(given, "ids", _is_index), _one(given, "weights", lambda value: value.is_floating_point())

    def decide(self, router: nn.Module, index: int, output: Any, given: tuple[Any, ...]) -> Decision:
        """Put together what one router decided, if everything fits; `index` is -1 where the model declares none."""
        ids, weights = self.chosen(router, output, given)
        outputs = output if isinstance(output, tuple) else (output,)
        if index >= 0:
            outputs = outputs[index : index + 1]
        wide = [part for part in outputs if isinstance(part, Tensor) and part.is_floating_point() and part.ndim >= 2]
        wide = [part for part in wide if part.shape[-1] > ids.shape[-1] and part.numel() // part.shape[-1] == len(ids)]
        if not wide:
            raise _refusal("its router returns no logits of one column an expert")
        logits = wide[0].reshape(len(ids), -1)
        if not self.gate:
            fits = {name: misfit(gates(logits), ids, weights) for name, gates in GATES.items()}
            best = min(fits, key=lambda name: fits[name])
            if not fits[best] <= _TOLERANCE:
                raise _refusal("the experts' weights are no known function of its router's output")
            self.gate = best
        return Decision(logits, self.gates(router, logits), ids, weights)


def _is_index(value: Tensor) -> bool:
    return not value.is_floating_point() and not value.is_complex() and value.ndim == 2


def _one(given: tuple[Any, ...], what: str, fits: Any) -> Tensor:
    """Return the one argument of the experts that fits, past the hidden states."""
    found = [value for value in given[1:] if isinstance(value, Tensor) and value.ndim == 2 and fits(value)]
    if len(found) != 1:
        raise _refusal(f"its experts do not receive the {what} of the chosen experts as one tensor")
    return found[0]


def _refusal(reason: str) -> CaptureError:
    return CaptureError(f"this architecture has no adapter, and generic hooks do not fit: {reason}; {HOW_TO}")


HOW_TO = "add a Family for it (docs/models.md says how), or give its router and experts the contract described there"
