"""The checkpoint part."""

__all__: list[str] = []
