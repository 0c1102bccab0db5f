"""Training: transformers' Trainer with the objective's terms, checkpoints to rely on, and whole-split evaluation."""

from stickymoe.training.arguments import StickyArguments
from stickymoe.training.callbacks import read_log
from stickymoe.training.checkpoints import newest_good_checkpoint
from stickymoe.training.evaluate import evaluate
from stickymoe.training.evaluation import Evaluation
from stickymoe.training.freezing import fingerprint, router_parameters, train_only, train_routers_only
from stickymoe.training.interrupts import Interrupted
from stickymoe.training.mixin import StickyTrainerMixin
from stickymoe.training.sticky_objective import StepShare, StickyObjective
from stickymoe.training.trainer import StickyTrainer

__all__ = [
    "Evaluation",
    "Interrupted",
    "StepShare",
    "StickyArguments",
    "StickyObjective",
    "StickyTrainer",
    "StickyTrainerMixin",
    "evaluate",
    "fingerprint",
    "newest_good_checkpoint",
    "read_log",
    "router_parameters",
    "train_only",
    "train_routers_only",
]
