"""Decoder layers and the body of the reference model: embeddings in, hidden states and routing out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.generic import can_return_tuple

from stickymoe.core.errors import SettingError
from stickymoe.model.attention import CausalSelfAttention
from stickymoe.model.checks import refuse_unknown, require_mask_shape, require_positions, require_token_ids
from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.documents import document_mask, documents_by_position, positions_in_documents
from stickymoe.model.experts import Experts, MoELayer
from stickymoe.model.memory import keep, recall
from stickymoe.model.output import StickyMoEOutput
from stickymoe.model.pretrained import StickyMoEPreTrainedModel
from stickymoe.model.routers import ROUTERS
from stickymoe.model.stream import TokenStream, real_tokens
from stickymoe.routing import Routing

KNOWN_ARGUMENTS = {"input_ids", "attention_mask", "document_ids", "position_ids", "inputs_embeds", "cache", "use_cache"}


class DecoderLayer(GradientCheckpointingLayer):  # type: ignore[no-untyped-call]
    """Pre-norm attention, then pre-norm experts."""

    def __init__(self, config: StickyMoEConfig, layer_idx: int, pool: Experts | None = None) -> None:
        """Create the layer at depth `layer_idx`, counted from 0, with experts of its own or those of `pool`."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.attention = CausalSelfAttention(config, layer_idx)
        self.moe_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.moe = MoELayer(config, pool)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch seq hidden"],
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        context: Any = None,
    ) -> tuple[Tensor | None, ...]:
        """Return the layer's output, then the tensors of its router's decision.

        Returned, not recorded on the side, so that recomputation under activation checkpointing adds no second one;
        flat, since reentrant checkpointing finds no tensors inside other tuples and would cut their gradient off.
        """
        output, attended = self.attention(self.attention_norm(hidden_states), attention_mask, cache)
        hidden_states = hidden_states + self.dropout(output)
        served, decision = self.moe(self.moe_norm(hidden_states), context, attended)
        return hidden_states + self.dropout(served), *decision


class StickyMoEModel(StickyMoEPreTrainedModel):
    """The decoder without its vocabulary projection."""

    def __init__(self, config: StickyMoEConfig) -> None:
        """Create embeddings, layers and final norm, initialised N(0, `initializer_range`)."""
        super().__init__(config)
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        shared = config.layers_per_pool
        pools: list[Experts | None] = [None] * config.num_hidden_layers
        if shared > 1:
            self.expert_pools = nn.ModuleList(Experts(config) for _ in range(config.num_hidden_layers // shared))
            pools = [cast(Experts, self.expert_pools[index // shared]) for index in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(DecoderLayer(config, index, pool) for index, pool in enumerate(pools))
        self.final_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding."""
        return self.token_embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.token_embedding = cast(nn.Embedding, value)

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Int[Tensor, "batch seq"] | None = None,
        attention_mask: Tensor | None = None,
        document_ids: Int[Tensor, "batch seq"] | None = None,
        position_ids: Int[Tensor, "_ seq"] | None = None,
        cache: Cache | None = None,
        inputs_embeds: Float[Tensor, "batch seq hidden"] | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        **unknown: Any,
    ) -> StickyMoEOutput:
        """Run the decoder; see `StickyMoEForCausalLM.forward` for the arguments."""
        refuse_unknown(unknown, KNOWN_ARGUMENTS)
        inputs_embeds = self._embed(input_ids, inputs_embeds)
        batch, seq, _ = inputs_embeds.shape
        nothing_else = document_ids is None and attention_mask is None and cache is None and not use_cache
        if position_ids is not None and nothing_else:
            document_ids = documents_by_position(position_ids).expand(batch, seq)
        cache = self._open_cache(cache, use_cache, document_ids)
        past = int(cache.get_seq_length()) if cache is not None else 0
        require_mask_shape(attention_mask, batch, past + seq)
        padding = attention_mask if attention_mask is not None and attention_mask.ndim == 2 else None
        token_mask = None if padding is None else padding[:, -seq:].bool()
        if document_ids is not None:
            mask = document_mask(token_mask, document_ids)
        else:
            mask = create_causal_mask(self.config, inputs_embeds, attention_mask, cache)
        if position_ids is None and document_ids is not None:
            position_ids = positions_in_documents(token_mask, document_ids)
        elif position_ids is None and padding is not None:
            position_ids = (padding.long().cumsum(dim=1) - 1).clamp(min=0)[:, -seq:]
        elif position_ids is None:
            position_ids = torch.arange(past, past + seq, device=inputs_embeds.device).unsqueeze(0)
        require_positions(position_ids, past + seq, self.config.max_position_embeddings)
        hidden = self.dropout(inputs_embeds + self.position_embedding(position_ids))
        stream = None
        if ROUTERS[self.config.router_type].reads_stream:
            real = real_tokens(attention_mask, batch, past, seq)
            stream = TokenStream(hidden, input_ids, real, document_ids, recall(cache, past))
        hidden, seen, decisions = self._run_layers(hidden, mask, cache, stream)
        logits, probs, expert_ids, weights, to_keep = map(tuple, zip(*decisions, strict=True))
        if stream is not None and cache is not None:
            keep(cache, stream.real_only(torch.cat([facts for facts in to_keep if facts is not None], dim=-1)))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return StickyMoEOutput(
            last_hidden_state=hidden,
            hidden_states=seen if output_hidden_states else None,
            cache=cache,
            routing=Routing(logits, probs, expert_ids, weights, token_mask=token_mask, document_ids=document_ids),
        )

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise SettingError("give the model either input_ids or inputs_embeds, not both and not neither")
        if input_ids is None:
            return cast(Tensor, inputs_embeds)
        require_token_ids(input_ids, self.token_embedding.num_embeddings)
        return cast(Tensor, self.token_embedding(input_ids))

    def _open_cache(self, cache: Cache | None, use_cache: bool | None, document_ids: Tensor | None) -> Cache | None:
        if document_ids is not None and (cache is not None or use_cache):
            raise SettingError("packed documents cannot be continued from a cache; generate each document on its own")
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training and document_ids is None
        return DynamicCache(config=self.config) if use_cache and cache is None else cache

    def _run_layers(
        self, hidden: Tensor, mask: Tensor | None, cache: Cache | None, stream: TokenStream | None
    ) -> tuple[Tensor, tuple[Tensor, ...], list[list[Tensor | None]]]:
        contexts: Sequence[Any] = [None] * len(self.layers)
        if stream is not None:
            contexts = ROUTERS[self.config.router_type].contexts(self.config, stream)
        seen, decisions = [hidden], []
        for layer, context in zip(self.layers, contexts, strict=True):
            hidden, *decision = layer(hidden, attention_mask=mask, cache=cache, context=context)
            seen.append(hidden)
            decisions.append(decision)
        hidden = self.final_norm(hidden)
        return hidden, (*seen[:-1], hidden), decisions
