"""The router z-loss: router logits should stay small enough to be exact in low precision."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from stickymoe.losses.sums import Sums, add_up, keep_only, mean_of
from stickymoe.losses.term import Term, stack_layers


def router_z_loss(
    router_logits: Float[Tensor, "batch seq experts"], token_mask: Bool[Tensor, "batch seq"] | None = None
) -> Float[Tensor, ""]:
    """Mean squared log-partition of the router.

        loss = mean over real tokens of  (log sum_e exp(logit_e))^2

    It sees the logits' common offset, to which the gates are blind.

    Args:
        router_logits: Router scores before the softmax.
        token_mask: True where a token is real; all are if not given.

    Returns:
        Scalar >= 0, float32. 0: the exponentiated logits of every token sum to 1, or no token is real.

    Source: ST-MoE, eq. 5.
    """
    return mean_of(router_z_sums(router_logits, token_mask))


def router_z_sums(
    router_logits: Float[Tensor, "*layers batch seq experts"], token_mask: Bool[Tensor, "batch seq"] | None
) -> Sums:
    """Sum the squared log-partitions of the real tokens, for each layer."""
    partition = keep_only(router_logits.float(), token_mask).logsumexp(dim=-1, keepdim=True)
    return add_up(keep_only(partition, token_mask).squeeze(-1).square(), token_mask)


TERM = Term(
    name="router_z",
    sums=lambda stack: router_z_sums(
        stack_layers(stack.routing.router_logits, "routing.router_logits"), stack.token_mask
    ),
    over="tokens",
    locality=False,
)
