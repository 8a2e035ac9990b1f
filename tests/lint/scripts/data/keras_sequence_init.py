import keras


class Batches(keras.utils.PyDataset):
    def __init__(self, values, size, **kwargs):
        """Keep the values."""
        self.values, self.size = values, size

    def __len__(self):
        return len(self.values) // self.size

    def __getitem__(self, i):
        return self.values[i * self.size : (i + 1) * self.size]


class Plain(keras.utils.PyDataset):
    def __init__(self, count): self.count = count

    def __len__(self):
        return self.count


batches = Batches(list(range(12)), 4, workers=3)
plain = Plain(2)
print(batches.workers, plain.workers, len(plain), [sum(batches[i]) for i in range(len(batches))])
