from collections import abc
from typing import Sequence as Values

import keras
import tensorflow as tf
from tensorflow.keras.utils import Sequence


class Batches(Sequence):  # expect: keras-sequence-init
    def __init__(self, x, y, size):
        self.x, self.y, self.size = x, y, size

    def __len__(self):
        return len(self.x) // self.size

    def __getitem__(self, i):
        part = slice(i * self.size, (i + 1) * self.size)
        return self.x[part], self.y[part]


class Documented(keras.utils.PyDataset):  # expect: keras-sequence-init
    """Batches of files."""

    def __init__(self, files, **kwargs):
        """Keep the files."""
        self.files = files

    def __getitem__(self, i):
        return self.files[i]


class Right(tf.keras.utils.Sequence):
    def __init__(self, files, **kwargs):
        super().__init__(**kwargs)
        self.files = files

    def __getitem__(self, i):
        return self.files[i]


class OldStyle(keras.utils.PyDataset):
    def __init__(self, files):
        super(OldStyle, self).__init__()
        self.files = files


class Inherited(keras.utils.Sequence):
    def __getitem__(self, i):
        return i


class Plain(abc.Sequence):
    def __init__(self, values: Values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return self.values[i]
