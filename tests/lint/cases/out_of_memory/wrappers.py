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
