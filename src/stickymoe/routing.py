"""`Routing`: what the routers of all MoE layers decided for a batch; losses, training and capture share it."""

import dataclasses

from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.core.errors import SettingError


@dataclasses.dataclass(frozen=True)
class Routing:
    """What the routers of all MoE layers decided for a batch: one tensor a layer, in layer order.

    Attributes:
        router_logits: Scores before the softmax.
        gate_probs: Softmax over all experts, before top-k; rows sum to 1. The training terms act on these.
        expert_ids: The experts that really served each token, largest weight first; slot 0 is the top-1 expert.
        expert_weights: What each chosen expert's output was multiplied by.
        token_mask: True where the token is real; None where every token is. Padding may hold anything.
        document_ids: Which document a token belongs to, by any numbers; None where each row is one document. A
            document begins wherever the id differs from its predecessor's.
        reference_probs: The gates of a frozen copy of each router for the same hidden states, without gradient, for the
            trust term; None where there is no copy.
    """

    router_logits: tuple[Float[Tensor, "batch seq experts"], ...]
    gate_probs: tuple[Float[Tensor, "batch seq experts"], ...]
    expert_ids: tuple[Int[Tensor, "batch seq top_k"], ...]
    expert_weights: tuple[Float[Tensor, "batch seq top_k"], ...]
    token_mask: Bool[Tensor, "batch seq"] | None = None
    document_ids: Int[Tensor, "batch seq"] | None = None
    reference_probs: tuple[Float[Tensor, "batch seq experts"], ...] | None = None

    def __post_init__(self) -> None:
        """Check that the shapes belong together; reads no values, so a GPU is not waited for.

        Raises:
            SettingError: A field's layers or shape do not match those of `gate_probs`.
        """
        if self.num_layers == 0:
            raise SettingError.broken("routing.gate_probs", "of at least one MoE layer", 0)
        tokens = tuple(self.gate_probs[0].shape[:2])
        for name in ("gate_probs", "router_logits"):
            self._require_layers(name, "gate_probs", tokens)
        for name in ("expert_ids", "expert_weights"):
            self._require_layers(name, "expert_ids", tokens)
        if self.reference_probs is not None:
            self._require_layers("reference_probs", "gate_probs", tokens)
        for name in ("token_mask", "document_ids"):
            tensor: Tensor | None = getattr(self, name)
            if tensor is not None and tuple(tensor.shape) != tokens:
                raise SettingError.broken(f"routing.{name}", f"of shape {tokens}", tuple(tensor.shape))

    @property
    def num_layers(self) -> int:
        """How many MoE layers there are."""
        return len(self.gate_probs)

    @property
    def num_experts(self) -> int:
        """How many experts the first MoE layer has."""
        return self.gate_probs[0].shape[-1]

    @property
    def top_k(self) -> int:
        """How many experts serve a token in the first MoE layer."""
        return self.expert_ids[0].shape[-1]

    def valid_pairs(self) -> Bool[Tensor, "batch pairs"] | None:
        """Which neighbours (t-1, t) count: both real and of one document. None where all of them do."""
        return valid_pairs(self.token_mask, self.document_ids)

    def detach(self) -> "Routing":
        """Return the same decisions cut off from the graph, to be kept after the backward pass."""
        return dataclasses.replace(
            self,
            router_logits=tuple(layer.detach() for layer in self.router_logits),
            gate_probs=tuple(layer.detach() for layer in self.gate_probs),
            expert_weights=tuple(layer.detach() for layer in self.expert_weights),
        )

    def _require_layers(self, name: str, width_of: str, tokens: tuple[int, ...]) -> None:
        found: tuple[Tensor, ...] = getattr(self, name)
        if len(found) != self.num_layers:
            raise SettingError.broken(f"routing.{name}", f"of {self.num_layers} layers, as gate_probs", len(found))
        for layer, (tensor, wide) in enumerate(zip(found, getattr(self, width_of), strict=False)):
            expected = (*tokens, wide.shape[-1])
            if tuple(tensor.shape) != expected:
                raise SettingError.broken(f"routing.{name}[{layer}]", f"of shape {expected}", tuple(tensor.shape))


def valid_pairs(
    token_mask: Bool[Tensor, "batch seq"] | None, document_ids: Int[Tensor, "batch seq"] | None
) -> Bool[Tensor, "batch seq-1"] | None:
    """Mark the neighbours (t-1, t) that are both real and of one document; None where all are.

    Ids at padding do not matter, since a pair with padding in it never counts.
    """
    both_real = None if token_mask is None else token_mask[:, 1:] & token_mask[:, :-1]
    if document_ids is None:
        return both_real
    same_document = document_ids[:, 1:] == document_ids[:, :-1]
    return same_document if both_real is None else both_real & same_document
