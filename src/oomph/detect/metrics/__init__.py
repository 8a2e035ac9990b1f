"""The metrics part."""

__all__: list[str] = []
