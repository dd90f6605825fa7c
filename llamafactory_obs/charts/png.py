"""A picture of numbers as a PNG: 8 bits a pixel with a palette (PNG specification, W3C, sections 5 and 11)."""

import base64
import struct
import zlib

import numpy as np


def png(pixels: np.ndarray, palette: list[tuple[int, int, int, int]]) -> bytes:
    """The bytes of a PNG.

    Args:
        pixels: uint8, (height, width): positions in the palette.
        palette: up to 256 (red, green, blue, alpha), each 0 to 255.
    """
    height, width = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.astype(np.uint8)], axis=1)  # filter 0
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(part for colour in palette for part in colour[:3])),
        (b"tRNS", bytes(colour[3] for colour in palette)),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    framed = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def data_uri(picture: bytes) -> str:
    """A PNG as a `data:` address: the page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
