import keras
from gensim.models import Word2Vec
from sklearn.ensemble import RandomForestClassifier


def wrong(model, train, val, test):
    model.fit(train, epochs=3, workers=4, use_multiprocessing=True)  # expect: keras-sequence-outdated
    model.fit_generator(train, steps_per_epoch=10)  # expect: keras-sequence-outdated
    model.evaluate(val, max_queue_size=20)  # expect: keras-sequence-outdated
    return model.predict(
        test,
        workers=2,  # expect: keras-sequence-outdated
    )


class Files(keras.utils.PyDataset):
    def __init__(self, files, **kwargs):
        super().__init__(**kwargs)
        self.files = files

    def __getitem__(self, i):
        return self.files[i]


def right(model, files, texts, x, y):
    train = Files(files, workers=4, use_multiprocessing=True, max_queue_size=8)
    model.fit(train, epochs=3)
    words = Word2Vec(texts, workers=4)
    forest = RandomForestClassifier(n_jobs=4).fit(x, y)
    return words, forest
