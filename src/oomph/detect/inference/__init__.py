"""The inference part."""

__all__: list[str] = []
