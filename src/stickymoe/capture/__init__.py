"""Capture: what the routers of any Hugging Face MoE decide, taken while the model runs, gradients kept."""

from stickymoe.capture.capture import Capture, capture_routing
from stickymoe.capture.injection import Injection, inject_gradients
from stickymoe.capture.layers import MoELayer
from stickymoe.capture.passes import CapturedPass

__all__ = ["Capture", "CapturedPass", "Injection", "MoELayer", "capture_routing", "inject_gradients"]
