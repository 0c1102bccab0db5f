"""Two checkpoints, or two traces, side by side: quality, locality, hit rates, and what locality costs."""
