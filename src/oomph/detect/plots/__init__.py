"""The plots part."""

__all__: list[str] = []
