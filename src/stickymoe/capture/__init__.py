"""Capture: what the routers of any Hugging Face MoE decide, taken while the model runs, gradients kept."""

from stickymoe.capture.capture import Capture, capture_routing
from stickymoe.capture.layers import MoELayer
from stickymoe.capture.passes import CapturedPass

__all__ = ["Capture", "CapturedPass", "MoELayer", "capture_routing"]
