"""A tiny random model of every MoE family that transformers knows, for tests and for the table of models."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers.models
from transformers import PreTrainedConfig, PreTrainedModel

from stickymoe.core.settings import require_one_of

# What the fields of a config are called, and how small they may be; a config takes those that it has
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "unpadded_vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "hidden_size": 16,
    "d_model": 16,
    "hidden_size_per_layer_input": 4,
    "moe_hidden_size": 16,
    "intermediate_size": 24,
    "dense_intermediate_size": 24,
    "shared_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "shared_experts_intermediate_size": 8,
    "share_expert_dim": 8,
    "ffn_hidden_size": 24,
    "num_hidden_layers": 3,
    "num_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "top_k_experts": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "moe_intermediate_size": 8,
    "moe_shared_expert_intermediate_size": 8,
    "expert_ffn_hidden_size": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "n_group": 2,
    "topk_group": 1,
    "o_groups": 2,
    "o_lora_rank": 8,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_topk": 16,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 4,
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "ssm_state_size": 4,
    "n_groups": 2,
    "linear_head_dim": 8,
    "linear_num_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "sliding_window": 16,
    "sliding_window_size": 16,
    "rel_extent": 16,
    "d_rel": 4,
    "n_layers_per_attn_res_block": 1,
    "router_hidden_size": 8,
    "hc_lowrank": 8,
    "hc_mult": 2,
    "loop_gate_rank": 4,
    "gated_norm_rank": 4,
    "time_step_rank": 4,
}
# Where a config has low-rank attention: as many heads for keys as for queries, all of one width
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
_HALF_ATTENTION = ["linear_attention", "full_attention", "linear_attention"]
# Where sizes are not enough, or not all that a family can do would run
SPECIAL: dict[str, dict[str, Any]] = {
    "dbrx": {
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 64,
        "ffn_config": {"ffn_hidden_size": 8, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
    },
    "beam": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "deepseek_ocr2": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "deepseek_v4": {"mlp_layer_types": ["hash_moe", "moe", "moe"], "num_key_value_heads": 1},
    "doge": {"is_moe": True, "num_keys": 2},
    "ernie4_5_vl_moe": {
        "hidden_size": 32,
        "moe_intermediate_size": [8, 8],
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
    },
    "dots3_note": {
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_q_lora_rank": 8,
        "swa_kv_lora_rank": 8,
        "swa_head_dim": 16,
        "swa_qk_nope_head_dim": 8,
        "swa_v_head_dim": 8,
    },
    "gemma4": {"enable_moe_block": True, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "bailing_hybrid": {"layer_types": _HALF_ATTENTION},
    "glm5_next": {
        "qk_rope_head_dim": 0,
        "head_dim": 0,
        "layer_types": _HALF_ATTENTION,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
    "hy_v4_vl": {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}},
    "kimi_linear": {"layer_types": _HALF_ATTENTION},
    "qwen4_exp": {
        "layer_types": _HALF_ATTENTION,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "step3p7": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "longcat_flash": {"zero_expert_num": 2},
    "glm4v_moe": {
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [1, 1, 0],
            "rope_theta": 1e4,
            "partial_rotary_factor": 1.0,
        },
    },
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "attention"]},
    "inkling2_loop": {"loop_layer_index_start": 1, "loop_layer_index_end": 2, "loop_num_passes": 3},
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "full_attention"]},
    "nemotron_h": {"layers_block_type": ["mamba", "moe", "attention", "moe"]},
    "llama4": {"num_experts_per_tok": 2, "attention_chunk_size": 16},
    "nllb_moe": {
        **{
            f"{side}_{size}": value
            for side in ("encoder", "decoder")
            for size, value in {"layers": 2, "ffn_dim": 16, "attention_heads": 2, "sparse_step": 2}.items()
        },
    },
    "qwen3_5_moe": {"layer_types": _HALF_ATTENTION},
    "qwen3_next": {"layer_types": _HALF_ATTENTION},
    "switch_transformers": {
        "d_kv": 8,
        "d_ff": 16,
        "num_heads": 2,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 1,
    },
    "zaya": {"num_experts_per_tok": 1},
}

_ROUTER_WEIGHT = re.compile(r"\.(gate|router|text_moe\.gate|vision_moe\.gate)(\.\w+)*\.weight$|\.router_mlp\..*weight$")
_DECLARES = re.compile(rb'"router_logits": OutputRecorder\(')


@cache
def families() -> tuple[str, ...]:
    """Return transformers' names of all families with a class that declares routers, in alphabetical order."""
    found = []
    for module in pkgutil.iter_modules(transformers.models.__path__):
        source = Path(transformers.models.__path__[0], module.name, f"modeling_{module.name}.py")
        if source.exists() and _DECLARES.search(source.read_bytes()):
            found.append(module.name)
    return tuple(sorted(found))


def model_class(family: str) -> type[PreTrainedModel]:
    """Return the family's language model, or its text body where only a larger whole has a language model."""
    require_one_of("family", family, families())
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    classes = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, PreTrainedModel) and kind.__module__ == module.__name__
    }
    for ending in ("ForCausalLM", "TextModel", "ForConditionalGeneration", "Model"):
        fitting = sorted((name for name in classes if name.endswith(ending)), key=len)
        if fitting:
            return classes[fitting[0]]
    raise AssertionError(f"{family} declares routers and has no model")


def tiny_config(family: str, **overrides: Any) -> PreTrainedConfig:
    """Return the smallest config of a family under which all of it runs."""
    config_class: Any = model_class(family).config_class
    known = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    sizes = SIZES | _LATENT if "kv_lora_rank" in known else SIZES
    chosen = {name: value for name, value in sizes.items() if name in known}
    config: PreTrainedConfig = config_class(**{**chosen, **SPECIAL.get(family, {}), **overrides})
    return config


def tiny_model(family: str, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Return a tiny random model of a family, in evaluation mode.

    Its routers are drawn wide and their biases and tables off zero, so that tokens differ in what they choose.
    """
    torch.manual_seed(seed)
    model = model_class(family)(tiny_config(family, **overrides))
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if re.search(r"correction_bias|expert_bias|balancing_biases", name):
                tensor.uniform_(0, 0.3)
            elif name.endswith("tid2eid"):  # hash routing: token id -> experts
                tensor.copy_(torch.rand(tensor.shape[0], 4).argsort(dim=1)[:, : tensor.shape[1]])
            elif _ROUTER_WEIGHT.search(name):
                tensor.normal_(0, 0.7)
    model.train(False)
    return model
