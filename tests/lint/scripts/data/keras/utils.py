"""A stand-in for keras.utils with what the constructor of Keras 3's PyDataset does."""

import warnings


class PyDataset:
    def __init__(self, workers=1, use_multiprocessing=False, max_queue_size=10):
        self._workers = workers

    @property
    def workers(self):
        if not hasattr(self, "_workers"):
            self._workers = 1
            warnings.warn("Your `PyDataset` class should call `super().__init__(**kwargs)` in its constructor.")
        return self._workers
