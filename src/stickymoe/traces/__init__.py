"""Routing traces: which experts served which token, in memory and on disk. Runs without torch."""

from stickymoe.traces.streams import Stream, streams
from stickymoe.traces.trace import RoutingTrace

__all__ = ["RoutingTrace", "Stream", "streams"]
