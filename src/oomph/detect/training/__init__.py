"""The training part."""

__all__: list[str] = []
