"""Finalisers that spread the bits of integer hashes, on whole arrays."""

from typing import Any

import numpy as np

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Words = np.ndarray[Any, np.dtype[np.uint32]]


def mix64(values: Hashes) -> Hashes:
    """A bijection of 64-bit values in which every input bit moves every output bit: SplitMix64's finaliser.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), variant 13 of Stafford.
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def mix32(values: Words) -> Words:
    """The 32-bit finaliser of MurmurHash3, which datasketch's scheme `affine32` applies before it permutes."""
    mixed = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return mixed ^ (mixed >> np.uint32(16))
