import logging
import sys

import torch

log = logging.getLogger(__name__)


def wrong_list(model, loader, criterion, optimizer):
    failed = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        try:
            criterion(model(x), y).backward()
            optimizer.step()
        except torch.cuda.OutOfMemoryError as error:
            failed.append((step, error))  # expect: exception-kept
    return failed


def wrong_last_error(train_epoch, model, loaders):
    last_error = None
    for loader in loaders:
        try:
            train_epoch(model, loader)
        except torch.OutOfMemoryError as e:
            last_error = e  # expect: exception-kept
            torch.cuda.empty_cache()
    print("last error:", last_error)


class Runner:
    def __init__(self, net):
        self.net, self.problem, self.info = net, None, {}

    def run(self, loader, optimizer, criterion):
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            try:
                criterion(self.net(x), y).backward()
            except RuntimeError as exc:
                if "out of memory" not in str(exc):
                    raise
                self.problem = exc  # expect: exception-kept
                self.info[i] = {"error": exc, "size": len(x)}  # expect: exception-kept
                continue
            optimizer.step()


def wrong_exc_info(model, batches):
    infos = []
    with torch.no_grad():
        for batch in batches:
            try:
                model(batch)
            except torch.cuda.OutOfMemoryError:
                infos.append(sys.exc_info())  # expect: exception-kept
    return infos


def right_text(model, loader, criterion, optimizer):
    failed = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        try:
            criterion(model(x), y).backward()
            optimizer.step()
        except torch.cuda.OutOfMemoryError as error:
            failed.append((step, str(error)))
            log.warning("step %d: %s", step, error)


def right_without_traceback(model, batch):
    problem = None
    try:
        model(batch)
    except torch.cuda.OutOfMemoryError as error:
        problem = error.with_traceback(None)
    return problem


def right_raised(model, batch):
    try:
        return model(batch)
    except torch.cuda.OutOfMemoryError as error:
        problem = error
        raise MemoryError("the batch is too large") from problem


def right_other_code(paths):
    errors = []
    for path in paths:
        try:
            with open(path) as file:
                file.read()
        except OSError as error:
            errors.append(error)
    return errors
