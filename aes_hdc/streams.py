"""Random streams named by what they are for, so that resuming needs no generator state.

Every draw of a run comes from a stream that is a function of the run's seed, a purpose
and counters such as the update and the episode. Nothing depends on how many draws came
before.
"""

import hashlib

import numpy as np

Name = str | int


def _digest(seed: int, names: tuple[Name, ...], size: int) -> bytes:
    """Hashes the stream's name; types are kept apart, so ("1",) is not (1,)."""
    text = "/".join(f"{type(name).__name__}:{name}" for name in (seed, *names))
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def generator(seed: int, *names: Name) -> np.random.Generator:
    """Returns the NumPy generator of the stream (seed, *names)."""
    key = np.frombuffer(_digest(seed, names, 16), np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def key_data(seed: int, *names: Name) -> np.ndarray:
    """Returns [2] uint32, the data of the JAX key of the stream (seed, *names)."""
    return np.frombuffer(_digest(seed, names, 8), np.uint32)


def integer(seed: int, *names: Name, high: int) -> int:
    """Returns an integer in [0, high) that belongs to the stream (seed, *names)."""
    return int.from_bytes(_digest(seed, names, 16), "little") % high
