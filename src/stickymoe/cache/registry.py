"""The policies by name: a new one is a file, a line here and a test case."""

from collections.abc import Callable

from stickymoe.cache.lru import LRU
from stickymoe.cache.policy import CachePolicy

# A factory is given the capacity in slots and returns a policy that has seen nothing yet.
PolicyFactory = Callable[[int], CachePolicy]

POLICIES: dict[str, PolicyFactory] = {
    "lru": lambda capacity: LRU(),
}
