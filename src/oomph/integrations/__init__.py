"""Adapters for other frameworks: one public file each, imported by its own name. No framework is imported here."""

__all__: list[str] = []
