"""Recording: any MoE model and a text become a routing trace on disk, prefill and decode, in bounded memory."""

from stickymoe.capture.recording.prompts import Prompt, Prompts, plan_prompts
from stickymoe.capture.recording.record import Recorded, Recording, record_trace
from stickymoe.capture.recording.run_batch import Writing
from stickymoe.capture.recording.texts import Texts, find_texts

__all__ = [
    "Prompt",
    "Prompts",
    "Recorded",
    "Recording",
    "Texts",
    "Writing",
    "find_texts",
    "plan_prompts",
    "record_trace",
]
