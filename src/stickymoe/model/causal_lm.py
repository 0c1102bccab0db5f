"""The reference language model: decoder, tied vocabulary projection, cross-entropy that never holds all logits."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import Cache, GenerationMixin
from transformers.utils.generic import can_return_tuple

from stickymoe.model.checks import refuse_unknown
from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.decoder import KNOWN_ARGUMENTS, StickyMoEModel
from stickymoe.model.linear_cross_entropy import IGNORED, linear_cross_entropy
from stickymoe.model.output import StickyMoEOutput
from stickymoe.model.pretrained import StickyMoEPreTrainedModel


class StickyMoEForCausalLM(StickyMoEPreTrainedModel, GenerationMixin):
    """GPT-2-style causal language model with a Mixture-of-Experts layer in every block.

    Example:
        model = StickyMoEForCausalLM(StickyMoEConfig.preset("paper-small"))
        out = model(input_ids, labels=input_ids)
        loss = out.loss + Objective(consistency=0.1, load_balancing=0.01)(out.routing).total

    Source: Sticky Routing, section 5.2.
    """

    _tied_weights_keys = {"lm_head.weight": "model.token_embedding.weight"}  # noqa: RUF012 - transformers' contract
    accepts_loss_kwargs = True

    def __init__(self, config: StickyMoEConfig) -> None:
        """Create the model with freshly initialised weights."""
        super().__init__(config)
        self.model = StickyMoEModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Int[Tensor, "batch seq"] | None = None,
        attention_mask: Tensor | None = None,
        document_ids: Int[Tensor, "batch seq"] | None = None,
        position_ids: Int[Tensor, "_ seq"] | None = None,
        labels: Int[Tensor, "batch seq"] | None = None,
        shift_labels: Int[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
        inputs_embeds: Float[Tensor, "batch seq hidden"] | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: Tensor | int | None = None,
        return_logits: bool | None = None,
        **unknown: Any,
    ) -> StickyMoEOutput:
        """Predict the next token at every position.

        Args:
            input_ids: Token ids in [0, vocab_size).
            attention_mask: 1 for real tokens, 0 for padding, over cache and input; all real if not given.
            document_ids: Which document each token belongs to; one begins where the id changes. Tokens attend within
                their document only, and positions restart at each. One document a row if not given.
            position_ids: Positions in [0, max_position_embeddings); counted over real tokens if not given. Alone,
                without mask and cache, they also tell packed documents apart: one begins where they do not go on.
            labels: Targets at their own positions, shifted here; -100 and padding are ignored.
            shift_labels: Targets already aligned with the position that predicts them; wins over `labels`.
            cache: Keys and values of earlier calls.
            inputs_embeds: Embeddings instead of `input_ids`.
            use_cache: Whether to return a cache. If not given: `config.use_cache`, but not where nothing can be
                continued, which is while training, with targets, and with packed documents.
            output_hidden_states: Whether to return the hidden states of every layer.
            logits_to_keep: Compute logits for the last so many positions only; 0 means all.
            num_items_in_batch: Divide the summed cross-entropy by this rather than by the targets of this call.
            return_logits: Whether logits are computed; if not given, only without targets.
            unknown: Refused, but for what tokenizers and collators add for other models.

        Returns:
            Loss (float32 scalar, 0 where no target counts), logits, cache and routing.

        Raises:
            SettingError: A sequence longer than `max_position_embeddings`, ids or targets outside the vocabulary,
                documents together with a cache, a mask of another length, or an argument nobody knows.
        """
        refuse_unknown(unknown, KNOWN_ARGUMENTS | {"labels", "shift_labels", "num_items_in_batch", "return_logits"})
        targets = _shifted(labels, attention_mask) if shift_labels is None else shift_labels
        if targets is not None and use_cache is None:
            use_cache = False
        out: StickyMoEOutput = self.model(
            input_ids,
            attention_mask,
            document_ids,
            position_ids,
            cache,
            inputs_embeds,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        hidden, routing = out.last_hidden_state, out.routing
        assert hidden is not None
        assert routing is not None
        loss = logits = None
        if targets is not None:
            if routing.token_mask is not None:  # what padding would predict is nobody's loss
                targets = targets.where(routing.token_mask, IGNORED)
            loss = linear_cross_entropy(
                hidden.flatten(0, 1), self.lm_head.weight, targets.flatten(), num_items_in_batch
            )
        if return_logits or (return_logits is None and targets is None):
            logits = self.lm_head(hidden[:, -logits_to_keep:])
        return StickyMoEOutput(
            loss=loss,
            logits=logits,
            cache=out.cache,
            last_hidden_state=hidden,
            hidden_states=out.hidden_states,
            routing=routing,
        )


def _shifted(labels: Tensor | None, attention_mask: Tensor | None) -> Tensor | None:
    """Align labels with the positions that predict them; padding is nobody's target."""
    if labels is None:
        return None
    if attention_mask is not None and attention_mask.ndim == 2:
        labels = labels.where(attention_mask[:, -labels.shape[1] :].bool(), IGNORED)
    return pad(labels[:, 1:], (0, 1), value=IGNORED)
