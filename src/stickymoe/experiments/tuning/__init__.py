"""Tuning the routers of a trained model for locality: objectives, the frozen reference, the control, the proof."""
