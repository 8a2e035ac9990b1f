import gc

import pytest
import tensorflow as tf
import torch


def wrong_behind_flag(train_epoch, model, data, optimizer):
    size = bs = 64
    while True:
        failed = False
        try:
            train_epoch(model, data, optimizer, bs)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            failed = True
        if not failed:
            break
        torch.cuda.empty_cache()
        bs = bs // 2  # expect: halved-without-accumulation
    return size, bs


def wrong_in_keras(build, paths, labels, batch_size=128):
    while batch_size:
        model = build()
        try:
            return model.fit(paths, labels, batch_size=batch_size)
        except tf.errors.ResourceExhaustedError:
            failed = True
        if failed:
            tf.keras.backend.clear_session()
            gc.collect()
            batch_size //= 2  # expect: halved-without-accumulation


def right_end_of_test(model, x):
    try:
        model(x)
        torch.cuda.synchronize()
    except RuntimeError as error:
        torch.cuda.empty_cache()
        pytest.fail(f"the device stopped: {error}")


def wrong_behind_success(train_epoch, model, data, optimizer, batch_size=64):
    while True:
        is_done = True
        try:
            train_epoch(model, data, optimizer, batch_size)
        except torch.cuda.OutOfMemoryError:
            is_done = False
        if is_done:
            break
        batch_size //= 2  # expect: halved-without-accumulation
        torch.cuda.empty_cache()
