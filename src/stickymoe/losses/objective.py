"""`Objective`: weighs the terms, adds them up, and gives each of them unweighted for the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.core.errors import SettingError
from stickymoe.losses import checks
from stickymoe.losses.boundary import boundary_pair_weights
from stickymoe.losses.registry import TERMS
from stickymoe.losses.runs import count_lagged_pairs
from stickymoe.losses.sums import Sums
from stickymoe.losses.symmetric_kl import REMOE_LAGS
from stickymoe.losses.term import LayerStack, stack_layers
from stickymoe.losses.working_set import WINDOW
from stickymoe.routing import Routing, valid_pairs


@dataclass(frozen=True)
class ObjectiveResult:
    """What an objective found for a batch.

    Attributes:
        total: The weighted sum, to be added to the cross-entropy.
        terms: Each term unweighted, by name. They are part of the graph: detach what is kept for a log.
        by_layer: The values whose mean a term is, one a layer, without gradient; one in all for the cross-layer term.
    """

    total: Float[Tensor, ""]
    terms: dict[str, Float[Tensor, ""]]
    by_layer: dict[str, Float[Tensor, " values"]] = field(default_factory=dict)


class Objective:
    """Named coefficients in, the weighted total and each unweighted term out.

        objective = Objective(consistency=0.1, load_balancing=0.01)
        loss = cross_entropy + objective(routing).total

    A term is the mean over layers of its function in this package; the cross-layer term is one value for the model.
    Terms of coefficient 0 cost nothing. The forward pass of the model is never touched.

    Exact over several batches (gradient accumulation, data parallelism) in two ways. `reduce` adds the sums behind
    every term up over ranks before they become values; `sum_across_ranks` does it. `normalisers` divide the plain means
    by the weight of a whole step instead of the batch's own, so that the micro-batches' results add up to the step's:

        weights = [objective.weights(batch["input_ids"], mask) for each micro-batch]
        step = {name: sum of weights[name] over micro-batches, then mean over ranks}
        objective(routing, normalisers=step, share=1 / number of micro-batches).total.backward()

    (The mean over ranks, not the sum, because gradients are averaged over ranks.) Load balancing and reuse are not
    plain means: theirs is the value of each micro-batch, over all ranks if `reduce` is given, times `share`.

    Args:
        coefficients: Weight of each term by name; 0 or absent is off. The same may be given as keywords.
        window: Tokens from one anchor to the next, for the anchor term.
        lags: Distances in tokens at which the lag term compares; ReMoE's if not given.
        working_set_window: Tokens of each window of the working-set term.
        boundary_weight: Weight in [0, 1] of pairs that enter a new sentence or line, in the pairwise terms.
        boundary_token_ids: The tokens after which one begins. With a weight below 1, calls need `input_ids`.
        layers_per_pool: How many adjacent layers share one pool of experts, block by block; 1 if none do. The
            cross-layer term asks for more, and counts pairs within a block.
        allow_unshared: Allow the cross-layer term all the same, over all pairs of adjacent layers.
        report: Further terms to be computed for the log, without gradient.
        reduce: Sums a vector over ranks, differentiable in this rank's part; not used where not given.
        by_name: Coefficients as keywords.

    Raises:
        SettingError: A term is unknown, a coefficient negative or not finite, or another setting breaks its rule.
    """

    def __init__(
        self,
        coefficients: Mapping[str, float | int] | None = None,
        *,
        window: int = 4,
        lags: Iterable[int] = REMOE_LAGS,
        working_set_window: int = WINDOW,
        boundary_weight: float | int = 1.0,
        boundary_token_ids: Iterable[int] = (),
        layers_per_pool: int = 1,
        allow_unshared: bool = False,
        report: Iterable[str] = (),
        reduce: Callable[[Tensor], Tensor] | None = None,
        **by_name: float | int,
    ) -> None:
        boundary_token_ids, lags = tuple(boundary_token_ids), tuple(lags)
        self.coefficients = checks.checked_coefficients(coefficients or {}, by_name)
        self.report = tuple(dict.fromkeys(name for name in report if name not in self.coefficients))
        for name in self.report:
            checks.require_known(name, "objective.report")
        checks.require_window(window)
        checks.require_window(working_set_window, "objective.working_set_window", f"{WINDOW} is the default")
        checks.require_lags(lags)
        checks.require_boundary(boundary_weight, boundary_token_ids)
        checks.require_shared_experts(self.coefficients, layers_per_pool, allow_unshared)
        self.window = window
        self.lags = lags
        self.working_set_window = working_set_window
        self.boundary_weight = float(boundary_weight)
        self.boundary_token_ids = torch.tensor(boundary_token_ids, dtype=torch.int64)
        self.layers_per_pool = layers_per_pool if layers_per_pool > 1 else None
        self.reduce = reduce

    def __call__(
        self,
        routing: Routing,
        input_ids: Int[Tensor, "batch seq"] | None = None,
        *,
        scale: float | int = 1.0,
        normalisers: Mapping[str, Tensor | float | int] | None = None,
        share: float | int = 1.0,
    ) -> ObjectiveResult:
        """Weigh the terms of one batch.

        Args:
            routing: What the routers decided.
            input_ids: The tokens, needed for boundary weights only.
            scale: Factor on the coefficients of the locality terms, for their warm-up; load balancing and router z keep
                theirs.
            normalisers: Weight of the whole step by term, for terms that are plain means; see the class.
            share: This batch's share of the step, for the terms that are not plain means; see the class.

        Raises:
            SettingError: Boundary weights are set and `input_ids` is missing, or a normaliser names another term.
        """
        normalisers = normalisers or {}
        for name in normalisers:
            if name not in TERMS or not TERMS[name].additive:
                raise SettingError.broken("objective.normalisers", "of terms that are plain means", name)
        sums = self._reduced(self.measure(routing, input_ids), normalisers)
        terms: dict[str, Tensor] = {}
        by_layer: dict[str, Tensor] = {}
        total = routing.gate_probs[0].flatten()[:0].float().sum()  # a zero that backward() accepts
        for name, found in sums.items():
            term = TERMS[name]
            if name in normalisers:
                found = found._replace(weight=torch.as_tensor(normalisers[name], device=found.total.device).float())
            values = term.value(found)
            if not term.additive:
                values = values * share
            value, by_layer[name] = values.mean(), values.detach()
            coefficient = self.coefficients.get(name)
            if coefficient is not None:
                total = total + coefficient * (scale if term.locality else 1.0) * value
            terms[name] = value if coefficient is not None else value.detach()
        return ObjectiveResult(total, terms, by_layer)

    def measure(self, routing: Routing, input_ids: Int[Tensor, "batch seq"] | None = None) -> dict[str, Sums]:
        """Return the sums of this batch behind each term, before any division: they add up over batches and ranks."""
        names = [*self.coefficients, *self.report]
        if not names:
            return {}
        stack = LayerStack(
            routing,
            stack_layers(routing.gate_probs).float(),
            self._pair_weights(input_ids, routing.token_mask, routing.document_ids),
            self.window,
            self.lags,
            self.working_set_window,
            self.layers_per_pool,
        )
        sums = {name: TERMS[name].sums(stack) for name in self.coefficients}
        with torch.no_grad():
            sums |= {name: TERMS[name].sums(stack) for name in self.report}
        return sums

    def weights(
        self,
        input_ids: Int[Tensor, "batch seq"],
        token_mask: Bool[Tensor, "batch seq"] | None = None,
        document_ids: Int[Tensor, "batch seq"] | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """Return what each plain mean will divide by for this batch, which is known before the model has run."""
        names = [name for name in (*self.coefficients, *self.report) if TERMS[name].additive]
        pairs = self._pair_weights(input_ids, token_mask, document_ids)
        tokens = (input_ids.shape[0], input_ids.shape[1])
        counts = {
            "tokens": (torch.ones_like(input_ids) if token_mask is None else token_mask).float().sum(),
            "pairs": count_lagged_pairs(pairs, (1,), tokens, input_ids.device),
            "lagged_pairs": count_lagged_pairs(pairs, self.lags, tokens, input_ids.device),
        }
        return {name: counts[TERMS[name].over] for name in names}

    def _pair_weights(
        self, input_ids: Tensor | None, token_mask: Tensor | None, document_ids: Tensor | None
    ) -> Tensor | None:
        """Which pairs count, or how much; None where all count fully."""
        valid = valid_pairs(token_mask, document_ids)
        pairwise = any(TERMS[name].over != "tokens" for name in (*self.coefficients, *self.report))
        if self.boundary_weight == 1.0 or not pairwise:
            return valid
        if input_ids is None:
            raise SettingError("objective.boundary_weight must be used with input_ids, got none; pass them to the call")
        weights = boundary_pair_weights(input_ids, self.boundary_token_ids, self.boundary_weight)
        return weights if valid is None else torch.where(valid, weights, 0.0)

    def _reduced(self, sums: dict[str, Sums], normalisers: Mapping[str, object]) -> dict[str, Sums]:
        """Add the sums up over ranks, all of them in one message; those with a normaliser stay this rank's share."""
        names = [name for name in sums if name not in normalisers]
        if self.reduce is None or not names:
            return sums
        parts = [part for name in names for part in sums[name] if part is not None]
        summed = self.reduce(torch.cat([part.flatten() for part in parts]))
        whole = iter(torch.split(summed, [part.numel() for part in parts]))
        reduced = {name: _like(sums[name], whole) for name in names}
        return {name: reduced.get(name, sums[name]) for name in sums}


def _like(sums: Sums, values: Iterator[Tensor]) -> Sums:
    """Take the next vectors of `values` for each tensor of `sums`, in its shape."""
    total, weight = next(values).view(sums.total.shape), next(values).view(sums.weight.shape)
    return Sums(total, weight, None if sums.slots is None else next(values).view(sums.slots.shape))
