from accelerate import Accelerator, GradientAccumulationPlugin


def right_first(model, optimizer, loader):
    accelerator = Accelerator(gradient_accumulation_steps=8)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()


def right_by_hand(model, optimizer, loader):
    accelerator = Accelerator(mixed_precision="bf16")
    for i, batch in enumerate(loader):
        accelerator.backward(model(**batch).loss / 8)
        if (i + 1) % 8 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def wrong_own(model, optimizer, loader):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss / 4)  # expect: loss-divided-twice
            optimizer.step()
            optimizer.zero_grad()


def wrong_plugin(model, optimizer, loader):
    plugin = GradientAccumulationPlugin(num_steps=4)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss / 4)  # expect: loss-divided-twice
            optimizer.step()
            optimizer.zero_grad()


def right_passed(accelerator, model, optimizer, loader):
    for i, batch in enumerate(loader):
        accelerator.backward(model(**batch).loss / 8)
        if (i + 1) % 8 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def wrong_passed(accelerator, model, optimizer, loader):
    for i, batch in enumerate(loader):
        accelerator.backward(model(**batch).loss / 8)  # expect: loss-divided-twice
        if (i + 1) % 8 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def main(model, optimizer, loader):
    accelerator = Accelerator()
    right_passed(accelerator, model, optimizer, loader)
    accelerator = Accelerator(gradient_accumulation_steps=8)
    wrong_passed(accelerator, model, optimizer, loader)
