"""From a recipe's tables to the trainer's settings."""

from __future__ import annotations

from pathlib import Path

import torch

from stickymoe.data import Corpus
from stickymoe.data.boundaries import boundary_token_ids
from stickymoe.experiments.ranks import Ranks
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.run_model import layers_per_pool, model_config
from stickymoe.training import StickyArguments


def trainer_arguments(recipe: Recipe, folder: Path, corpus: Corpus, ranks: Ranks) -> StickyArguments:
    """Return the trainer's settings for a run of `recipe` in `folder`, shared out over its processes.

    Raises:
        SettingError: A setting breaks its rule.
    """
    settings, objective = recipe.training, recipe.objective
    relaxed = objective.boundary_weight < 1
    return StickyArguments(
        output_dir=str(folder),
        objective=objective.coefficients(),
        window=objective.window,
        boundary_weight=objective.boundary_weight,
        boundary_token_ids=boundary_token_ids(corpus.tokenizer) if relaxed else [],
        coefficient_warmup_steps=objective.warmup_steps,
        layers_per_pool=layers_per_pool(model_config(recipe, corpus.vocab_size)),
        allow_unshared=objective.allow_unshared,
        report_terms=["consistency", "load_balancing"],
        max_steps=settings.steps,
        per_device_train_batch_size=ranks.share(settings.batch_size),
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.peak_learning_rate,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.adam_beta1,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.precision == "bf16",
        activation_checkpointing=settings.activation_checkpointing,
        seed=settings.seed,
        data_seed=settings.seed,
        logging_steps=settings.log_every,
        eval_strategy="steps" if settings.evaluate_every else "no",
        eval_steps=settings.evaluate_every or None,
        save_steps=settings.checkpoint_every,
        save_total_limit=settings.keep_checkpoints,
        report_to=list(settings.report_to),
        use_cpu=ranks.count > 1 and not torch.cuda.is_available(),  # else accelerate takes each process for itself
        dataloader_pin_memory=torch.cuda.is_available(),
    )
