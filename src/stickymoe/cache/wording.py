"""Words that every report of a replay shares."""


def start(reset: str) -> str:
    """Say when a cache starts cold: `sequence` or `never`."""
    return "cold at each sequence" if reset == "sequence" else "one cache through the whole trace"


def place(scope: str) -> str:
    """Say whose slots a capacity counts: those of a `layer`, or of the whole model."""
    return "a layer" if scope == "layer" else "for the whole model"
