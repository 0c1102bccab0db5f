"""What makes a result stand although the code has changed since: versions that are raised by hand.

A run's row is kept as long as the same recipe, trained and measured by this code, would give the same numbers. A
checksum of all sources would throw hours of work away for a comment; these numbers change only when results do. The
test beside them trains a small run and fails when its numbers move, so that nobody forgets.
"""

TRAINING_VERSION = 1
"""Raise it when the same recipe would end with other weights: model, losses, order of batches, optimiser, tokens."""

EVALUATION_VERSION = 1
"""Raise it when the same weights would be measured otherwise: cross-entropy, measures of routing, cache replays."""
