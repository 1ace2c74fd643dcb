"""FAISS's factory strings: which are indexes of passages by inner product. Planning reads this module: no FAISS.

The grammar is that of faiss/index_factory.cpp (1.15.1), except for parts that cannot serve here: those that FAISS has
only for L2 distances, does not store, or answers by ending the process. A string is checked before anything is encoded:
FAISS refuses some of them only after hours of training, and searches others in the wrong direction.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from tandem.config.indexes import SIGN_INDEX

_DEFAULT_LINKS = 32  # per graph node, if the string names no number
_MOST_LINKS = 512  # per graph node, at most: more would take kilobytes per passage
_MOST_CODE_BITS = 24  # of a part's code, at most: FAISS's limit
_CODES_PER_BATCH = 32  # codes that are compared at once: the size of a batch is a multiple
_THOUSANDS = {"": 1, "k": 1 << 10, "M": 1 << 20}
# FAISS has a special loop for product codes with two dimensions per part, which reads eight centroids at a time.
LEAST_BITS_OF_PAIRS = 3
_UNKNOWN_INDEX = "FAISS has no such index, or none of such a size"

_NUMBER = r"([1-9]\d*)"
_SCALAR = r"SQ(?:4|6|8|fp16|bf16|8_direct|8_direct_signed|tqmse[12348]|tq[2345])"
# scalar quantisers that can compare a query with codes, but not codes with one another
_ONE_SIDED = r"SQtq[2345]"
_NORMS = r"(?:_N(?:none|float|qint8|qint4|lsq2x4|rq2x4))?"
# Indexes that re-rank: codes that FAISS can compare one at a time.
_REFINING = rf"Flat|(?!{_ONE_SIDED}$){_SCALAR}|PQ[x\d]+(?:np)?|P?(?:RQ|LSQ)[x_\d]+{_NORMS}|(?:RaBitQ|EDEN)\d?"

# Words that FAISS knows but that cannot be an index here, and why.
_REFUSED_WORDS = {
    r"IDMap2?": "passages are numbered already; leave it out",
    r"MinMax(FP16)?": "FAISS adds no vectors to it; leave it out",
    r"ZnLattice.*": "FAISS does not store its vectors; name another code",
    r"(HNSW\d*_)?SQ0": "it stores nothing of a vector; name another code",
    r"NSG.*|IVF\w+_NSG.*": "FAISS may not come to an end with it, or ends the process; name HNSW",
    r"IMI.*|Residual.*|PQ\d+\+\d+": "FAISS has it for L2 distances alone; name IVF and another code",
    r"FlatL2Panorama.*": "it compares by L2 distances; name FlatIPPanorama",
    r"SH.*": "it compares by Hamming distances; name another code",
    r"LSCQ.*": "FAISS adds no vectors to it; name LSQ",
    r"RCQ.*": "it chooses lists and is not an index; name RQ",
    r".*_Nc(qint8|qint4).*": "it groups norms, which inner products do not need; leave out what follows _N",
    r"SVS.*|IVF\w+_SVS.*": "FAISS's packages lack it; name HNSW or IVF",
}


@dataclass(frozen=True)
class Description:
    """The index that a factory string names.

    Attributes:
        dimension: dimension of the stored vectors, after all transforms; None if that of the input is not known.
        least: the least number of vectors that it is learned from.
        lists: number of inverted lists; 0 for none.
        links: links of each node, if its vectors are the nodes of a graph; 0 for none.
    """

    dimension: int | None
    least: int = 1
    lists: int = 0
    links: int = 0

    @property
    def is_graph(self) -> bool:
        """Return whether its vectors are the nodes of a graph."""
        return self.links > 0

    def needing(self, vectors: int | None) -> "Description":
        """Return the same description, but with at least `vectors` vectors to learn from."""
        return replace(self, least=max(self.least, vectors or 1))


def describe_factory(text: str, dimension: int | None = None) -> Description:
    """Return the description of a factory string, for vectors of a dimension, if that is known.

    Raises:
        ValueError: FAISS does not know it, or it is not an index here; the message names the part and the reason.
    """
    for word in _iterate_words(text):
        for pattern, why in _REFUSED_WORDS.items():
            _require(not re.fullmatch(pattern, word), word, why)
    if SIGN_INDEX in text and not re.search(rf"(^|,){SIGN_INDEX}(\d*r?t?)$", text):
        raise ValueError(f"{text} compares more than signs; leave out what follows {SIGN_INDEX}")
    if match := re.fullmatch(r"(.+),RefinePanorama\((.*)\)", text):
        right = re.fullmatch(rf"FlatIPPanorama{_NUMBER}_1", match[2])
        _require(right, match[2], "vectors are compared one at a time; write FlatIPPanorama8_1")
        return _refined(match[1], match[2], dimension)
    if match := re.fullmatch(r"(.+),(?:RFlat|Refine\((.*)\))", text):
        refining = "Flat" if match[2] is None else match[2]
        _require(
            re.fullmatch(_REFINING, refining),
            refining,
            "it cannot re-rank; name Flat, a scalar quantiser or PQ",
        )
        return _refined(match[1], refining, dimension)
    first, comma, rest = text.partition(",")
    for pattern, transform in _TRANSFORMS.items():
        match = re.fullmatch(pattern, first)
        if comma and match:
            sizes = map(int, filter(None, match.groups()))
            output, least = transform(first, dimension, *sizes)
            return describe_factory(rest, output).needing(least)
    for pattern, read in _INDEXES.items():
        if match := re.fullmatch(pattern, text):
            return read(text, dimension, *match.groups())
    return _codes(text, dimension, _FLAT_CODES)


def _iterate_words(text: str) -> Iterator[str]:
    """Yield the parts of a string between commas; commas in parentheses do not count."""
    flat = text
    while (shorter := re.sub(r"\([^()]*\)", "", flat)) != flat:
        flat = shorter
    yield from flat.split(",")


def _require(holds: object, part: str, why: str) -> None:
    if not holds:
        raise ValueError(f"{part}: {why}")


def _refined(base: str, refining: str, dimension: int | None) -> Description:
    """Return an index whose results another index re-ranks; that one holds vectors before any transform."""
    codes = _codes(refining, dimension, _REFINING_CODES)
    return describe_factory(base, dimension).needing(codes.least)


# Transforms: the dimension of their output, and the least number of vectors that they are learned from.

_Transformed = tuple[int | None, int | None]


def _reduce(word: str, dimension: int | None, size: int | None = None) -> _Transformed:
    _require(
        not (dimension and size and size > dimension),
        word,
        f"the vectors have {dimension} dimensions",
    )
    return size or dimension, size


def _rotate(word: str, dimension: int | None, size: int | None = None) -> _Transformed:
    return size or dimension, None


def _spread(word: str, dimension: int | None, seed: int = 0) -> _Transformed:
    # the rows of a Hadamard matrix are a power of two
    return dimension and 1 << (dimension - 1).bit_length(), None


def _pad(word: str, dimension: int | None, size: int) -> _Transformed:
    return dimension and max(dimension, size), None


def _rotate_for_codes(
    word: str, dimension: int | None, parts: int, size: int | None = None
) -> _Transformed:
    _divides(word, parts, size or dimension)
    return size or dimension, max(dimension or 1, size or 1)


def _keep(word: str, dimension: int | None) -> _Transformed:
    return dimension, None


_TRANSFORMS: dict[str, Callable[..., _Transformed]] = {
    rf"PCAW?R?{_NUMBER}": _reduce,
    rf"ITQ{_NUMBER}?": _reduce,
    rf"RR{_NUMBER}?": _rotate,
    r"HR(\d*)": _spread,
    rf"Pad{_NUMBER}": _pad,
    rf"OPQ{_NUMBER}(?:_{_NUMBER})?": _rotate_for_codes,
    r"L2[nN]orm": _keep,
}


# Indexes that are composed of others.


def _signs(text: str, dimension: int | None, bits: str | None) -> Description:
    return Description(dimension)


def _graph(text: str, dimension: int | None, links: str | None, code: str | None) -> Description:
    """Return a graph of vectors, or of codes that are compared with one another."""
    _require_links(text, links)
    code = code or "Flat"
    _require(
        not re.match(r"PQ|\d|FlatPanorama", code),
        text,
        "FAISS has it for L2 distances alone; name Flat or SQ8",
    )
    _require(
        not re.fullmatch(_ONE_SIDED, code),
        text,
        "it does not compare codes with one another; name Flat or SQ8",
    )
    _require(code == "Flat" or re.fullmatch(_SCALAR, code), text, _UNKNOWN_INDEX)
    return Description(dimension, links=int(links or _DEFAULT_LINKS))


def _require_links(text: str, links: str | None) -> None:
    _require(
        not links or 2 <= int(links) <= _MOST_LINKS, text, f"a node has 2 to {_MOST_LINKS} links"
    )


def _inverted(
    text: str,
    dimension: int | None,
    size: str,
    thousands: str,
    links: str | None,
    chosen_by: str | None,
    code: str,
) -> Description:
    """Return inverted lists of vectors or codes; an index of their centroids may choose the lists."""
    lists = int(size) * _THOUSANDS[thousands]
    _require_links(text, links)
    if chosen_by and (
        match := re.fullmatch(rf"RCQ({_NUMBER}x{_NUMBER}(?:_{_NUMBER}x{_NUMBER})*)", chosen_by)
    ):
        centroids = prod(
            1 << (int(parts) * int(bits)) for parts, bits in re.findall(r"(\d+)x(\d+)", match[1])
        )
        _require(
            centroids == lists, chosen_by, f"it chooses among {centroids:,} lists, not {lists:,}"
        )
    elif chosen_by:
        least = describe_factory(chosen_by, dimension).least
        _require(
            least <= lists, chosen_by, f"it is learned from the lists, at least {least:,} of them"
        )
    return replace(_codes(code, dimension, _LISTED_CODES), lists=lists).needing(lists)


_INDEXES: dict[str, Callable[..., Description]] = {
    rf"{SIGN_INDEX}{_NUMBER}?r?t?": _signs,
    r"HNSW(\d*)(?:[,_](.*))?": _graph,
    rf"IVF{_NUMBER}([kM]?)(?:_HNSW(\d*)|\((.+)\))?,(.+)": _inverted,
}


# Codes: the least number of vectors that they are learned from.


def _codes(text: str, dimension: int | None, codes: dict[str, Callable[..., int]]) -> Description:
    """Return vectors or codes, one after another: all of them, or those of a list."""
    for pattern, read in codes.items():
        if match := re.fullmatch(pattern, text):
            return Description(dimension, read(text, dimension, *match.groups()))
    raise ValueError(f"{text}: {_UNKNOWN_INDEX}")


def _divides(text: str, parts: int, dimension: int | None) -> None:
    _require(
        not dimension or dimension % parts == 0,
        text,
        f"{parts} does not divide the {dimension} dimensions",
    )


def _centroids(text: str, bits: int) -> int:
    _require(bits <= _MOST_CODE_BITS, text, f"a code has at most {_MOST_CODE_BITS} bits")
    return 1 << bits


def _batch(text: str, size: str | None) -> None:
    _require(
        not size or int(size) % _CODES_PER_BATCH == 0,
        text,
        f"the size of a batch, {size}, is not a multiple of {_CODES_PER_BATCH}",
    )


def _plain(text: str, dimension: int | None) -> int:
    return 1


def _levels(text: str, dimension: int | None, levels: str | None, batch: str | None) -> int:
    _require(
        not dimension or int(levels or 8) <= dimension,
        text,
        f"the vectors have {dimension} dimensions",
    )
    return 1


def _product(text: str, dimension: int | None, parts: str, bits: str | None) -> int:
    _divides(text, int(parts), dimension)
    return _centroids(text, int(bits or 8))


def _searched_product(text: str, dimension: int | None, parts: str, bits: str | None) -> int:
    """Refuse product codes of an index that FAISS cannot search; otherwise do as `_product`."""
    least = _product(text, dimension, parts, bits)
    _require(
        dimension != 2 * int(parts) or int(bits or 8) >= LEAST_BITS_OF_PAIRS,
        text,
        f"FAISS cannot search parts of two dimensions by fewer than {LEAST_BITS_OF_PAIRS} bits; "
        "name more bits, or other parts",
    )
    return least


def _fast_product(text: str, dimension: int | None, parts: str, batch: str | None) -> int:
    _divides(text, int(parts), dimension)
    _batch(text, batch)
    return _centroids(text, 4)


def _residual(text: str, dimension: int | None, sizes: str, *_: str | None) -> int:
    bits = [int(bits) for _, bits in re.findall(r"(\d+)x(\d+)", sizes)]
    return max(_centroids(text, max(bits)), dimension or 1)  # a component analysis comes first


def _local(text: str, dimension: int | None, parts: str, bits: str) -> int:
    return _centroids(text, int(bits))


def _product_additive(text: str, dimension: int | None, splits: str, parts: str, bits: str) -> int:
    _divides(text, int(splits), dimension)
    return max(_centroids(text, int(bits)), dimension or 1)


def _fast_additive(text: str, dimension: int | None, parts: str, batch: str | None) -> int:
    _batch(text, batch)
    return max(_centroids(text, 4), dimension or 1)


def _fast_product_additive(
    text: str, dimension: int | None, splits: str, parts: str, batch: str | None
) -> int:
    _divides(text, int(splits), dimension)
    return _fast_additive(text, dimension, parts, batch)


def _fast_bits(text: str, dimension: int | None, batch: str | None) -> int:
    _batch(text, batch)
    return 1


_PRODUCT = rf"PQ{_NUMBER}(?:x{_NUMBER})?(?:np)?"
_PANORAMA = rf"FlatIPPanorama{_NUMBER}(?:_{_NUMBER})?"
_CODES: dict[str, Callable[..., int]] = {
    "Flat": _plain,
    _SCALAR: _plain,
    _PRODUCT: _product,
    rf"RQ({_NUMBER}x{_NUMBER}(?:_{_NUMBER}x{_NUMBER})*){_NORMS}": _residual,
    rf"LSQ{_NUMBER}x{_NUMBER}{_NORMS}": _local,
    rf"P(?:RQ|LSQ){_NUMBER}x{_NUMBER}x{_NUMBER}{_NORMS}": _product_additive,
    r"RaBitQ[1-9]?": _plain,
    rf"RaBitQfs[1-9]?(?:_{_NUMBER})?": _fast_bits,
    r"EDEN[1-8]?(?:BIAS|BIASED)?": _plain,
}
# Codes that re-rank, or that are in lists, are compared one at a time, by another loop than an index of only codes.
_REFINING_CODES = _CODES | {_PANORAMA: _levels}
# Of codes compared many at a time, those in lists may encode the difference from the centroid (`r`).
_FLAT_CODES = _CODES | {
    _PRODUCT: _searched_product,
    _PANORAMA: _levels,
    rf"PQ{_NUMBER}x4fs(?:_{_NUMBER})?": _fast_product,
    rf"(?:RQ|LSQ){_NUMBER}x4fs(?:_{_NUMBER})?(?:_Nnone)?": _fast_additive,
    rf"P(?:RQ|LSQ){_NUMBER}x{_NUMBER}x4fs(?:_{_NUMBER})?(?:_Nnone)?": _fast_product_additive,
}
_LISTED_CODES = _CODES | {
    "FlatDedup": _plain,
    rf"FlatPanorama{_NUMBER}?(?:_{_NUMBER})?": _levels,
    rf"PQ{_NUMBER}x4fsr?(?:_{_NUMBER})?": _fast_product,
    rf"(?:RQ|LSQ){_NUMBER}x4fsr?(?:_{_NUMBER})?(?:_Nnone)?": _fast_additive,
    rf"P(?:RQ|LSQ){_NUMBER}x{_NUMBER}x4fsr?(?:_{_NUMBER})?(?:_Nnone)?": _fast_product_additive,
}
