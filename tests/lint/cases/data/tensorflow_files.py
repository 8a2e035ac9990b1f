import pathlib

import numpy as np
import tensorflow as tf


def wrong_reader(path):
    picture = tf.io.decode_jpeg(tf.io.read_file(str(path)), channels=3)
    return tf.image.resize(picture, (128, 128)).numpy()  # expect: resize-after-full-decode


def right_reader(path):
    picture = tf.io.decode_jpeg(tf.io.read_file(str(path)), channels=3, ratio=8)
    return tf.image.resize(picture, (128, 128))


places = list(pathlib.Path("pictures").rglob("*.jpg"))
pictures = np.array([wrong_reader(place) for place in places])  # expect: dataset-in-memory
network = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
network.fit(pictures, np.zeros(len(pictures)), epochs=2)  # expect: keras-arrays-in-memory
dataset = tf.data.Dataset.list_files("pictures/*.jpg").map(right_reader)
