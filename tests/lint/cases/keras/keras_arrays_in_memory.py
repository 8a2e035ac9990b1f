import os

import keras
import numpy as np
from keras.utils import img_to_array, load_img
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split


def read(folder):
    data, labels = [], []
    for name in os.listdir(folder):
        picture = load_img(os.path.join(folder, name), target_size=(128, 128))
        data.append(img_to_array(picture))  # expect: dataset-in-memory
        labels.append(name.startswith("cat"))
    return np.array(data), np.array(labels)


images, labels = read("pets")
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.2)

model = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(2)])
model.compile(loss="mse")
model.fit(x_train, y_train, epochs=10)  # expect: keras-arrays-in-memory


def direct(paths):
    files = sorted(os.listdir("pets"))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])  # expect: dataset-in-memory
    model.fit(x=pixels, y=labels, batch_size=8)  # expect: keras-arrays-in-memory


(digits, numbers), _ = keras.datasets.mnist.load_data()
model.fit(digits, numbers, epochs=2)
table = np.loadtxt("table.csv")
model.fit(table[:, 1:], table[:, 0], epochs=2)
train = keras.utils.image_dataset_from_directory("pets", image_size=(128, 128), batch_size=32)
model.fit(train, epochs=2)
LogisticRegression().fit(table[:, 1:], table[:, 0])
