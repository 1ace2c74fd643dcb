"""Show numbers of bytes as people read them."""


def format_bytes(size: int) -> str:
    """Format a number of bytes: `512 B`, `1.2 MB`, `21.8 GB` (powers of 1,000)."""
    power = 0
    while power < 4 and size / 1000**power >= 999.95:
        power += 1
    if not power:
        return f"{size} B"
    return f"{size / 1000**power:.1f} {' kMGT'[power]}B"
