"""The bytes of an image file, if its first bytes are those of an image that TensorFlow decodes."""

from pathlib import Path

_DECODED = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM")
_OTHERS = {b"II*\0": "TIFF", b"MM\0*": "TIFF", b"<svg": "SVG", b"%PDF": "PDF"}


class ImageError(Exception):
    """A file is no image that can be used; the text says why."""


def read_image(path: str) -> bytes:
    """Returns the content of an image file.

    Raises:
      ImageError: It cannot be read, is empty, or is no JPEG, PNG, GIF or BMP image by its first bytes.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            content = file.read()
    except OSError as e:
        raise ImageError(f"cannot be read: {e.strerror}") from e
    if content.startswith(_DECODED):
        return content
    if not content:
        raise ImageError("is empty; copy it again, or remove it")
    raise ImageError(f"{_what_it_is(content)}; give JPEG, PNG, GIF or BMP")


def _what_it_is(content: bytes) -> str:
    for start, name in _OTHERS.items():
        if content.startswith(start):
            return f"is a {name} file"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "is a WebP image"
    if content[4:8] == b"ftyp":
        return "is a HEIF, AVIF or MP4 file"
    return f"is no image (its first bytes are {content[:8]!r})"
