"""The model part."""

__all__: list[str] = []
