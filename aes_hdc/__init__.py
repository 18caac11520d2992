"""AES and HDC: vision-language agents trained on selected, ordered environments."""

__version__ = "0.1.0"
