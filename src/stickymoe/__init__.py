"""StickyMoE: Mixture-of-Experts routers that stay put, measured, predicted and run inside a memory budget."""

__version__ = "0.1.0"
