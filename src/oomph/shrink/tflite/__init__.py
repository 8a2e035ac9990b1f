"""Keras models as TFLite files. This process imports no TensorFlow: models are converted and run in others."""

from ._tflite import TfliteRequest, shrink_tflite

__all__ = ["TfliteRequest", "shrink_tflite"]
