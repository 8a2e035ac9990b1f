import logging

import torch

log = logging.getLogger(__name__)


def wrong_runtime_error(train_step, batches):
    for batch in batches:
        try:
            train_step(batch)
        except RuntimeError:  # expect: broad-oom-except
            print("CUDA out of memory, skipping the batch")
            torch.cuda.empty_cache()


def wrong_comment(model, batches, criterion, optimizer):
    for x, y in batches:
        optimizer.zero_grad()
        try:
            criterion(model(x), y).backward()
            optimizer.step()
        except Exception as e:  # expect: broad-oom-except
            # probably OOM
            log.warning("skipped: %s", e)


def fits(net, shape, n):
    try:
        net(torch.randn(n, *shape, device="cuda")).sum().backward()
    except:  # expect: broad-oom-except
        return False
    return True


def wrong_search(train, make_loader, accum_steps=1):
    bs = 64
    while bs > 0:
        try:
            train(make_loader(bs), accum_steps)
            break
        except Exception:  # expect: broad-oom-except
            accum_steps *= 2
            bs //= 2


def right_type(train_step, batches):
    for batch in batches:
        try:
            train_step(batch)
        except torch.cuda.OutOfMemoryError:
            log.warning("out of memory, batch skipped")


def right_message(train_step, batches):
    for batch in batches:
        try:
            train_step(batch)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            log.warning("out of memory, batch skipped")


def right_text_variable(train_step, batches):
    for batch in batches:
        try:
            train_step(batch)
        except RuntimeError as error:
            message = str(error).lower()
            if "memory" in message:
                continue
            raise


def right_predicate(train_step, batch, is_oom):
    try:
        return train_step(batch)
    except RuntimeError as error:
        if is_oom(error):
            return None
        raise


def right_raises(train_step, batch):
    try:
        return train_step(batch)
    except Exception:
        log.exception("out of memory?")
        raise


def right_other_purpose(train, checkpoint):
    try:
        train()
    except Exception:
        checkpoint.save()
        log.exception("training failed")
