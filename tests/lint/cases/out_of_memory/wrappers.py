import torch


def wrong_wrapper(function):
    def call(*values):
        try:
            return function(*values)
        except RuntimeError:  # expect: broad-oom-except
            torch.cuda.empty_cache()
            return None

    return call


def right_wrapper(function):
    def call(*values):
        try:
            return function(*values)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None

    return call


def wrong_wrapper(function, least=1):
    def wrapper(batch, *others):
        try:
            return function(batch, *others)
        except RuntimeError as error:
            if "out of memory" not in str(error) or len(batch) <= least:
                raise
            torch.cuda.empty_cache()
            first, second = batch.chunk(2)
            function(first, *others)  # expect: retry-inside-except
            return function(second, *others)

    return wrapper


def right_message(say, train, model):
    try:
        say("training")
        train(model)
    except torch.OutOfMemoryError:
        say("out of memory, the results so far are kept")
