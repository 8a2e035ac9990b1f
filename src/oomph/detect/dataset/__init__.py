"""The dataset part."""

__all__: list[str] = []
