from __future__ import annotations

import pytest

from oomph.failures import FailureKind, Finding, Resource, read_log

DISK = "OSError: [Errno 28] No space left on device: '/data/cache/{}.npy'"
INODES = "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/sdb1 244195328 {} {}  {}% /data"
NUMPY = "numpy.core._exceptions.MemoryError: Unable to allocate 1.07 GiB for an array with shape (12000, 12000)"
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def first(text: str) -> Finding:
    return read_log(text)[0]


def test_a_file_system_without_inodes_has_too_many_files() -> None:
    finding = first(f"{DISK}\n$ df -i /data\n{INODES.format(244195328, 0, 100)}")
    assert "no inodes" in finding.details[0]
    assert "--inodes" in finding.advice[0].command


def test_free_inodes_are_no_evidence() -> None:
    finding = first(f"{DISK}\n$ df -i /data\n{INODES.format(1000, 244194328, 1)}")
    assert finding.details == ()
    assert "df -h" in finding.advice[0].command


@pytest.mark.parametrize(
    ("beside", "resource", "command"),
    [
        ("$ cat /proc/sys/vm/overcommit_memory\n2", Resource.COMMIT, "vm.overcommit_memory=0"),
        ("'3.7.4 [MSC v.1916 32 bit (Intel)]'", Resource.ADDRESS_SPACE, "calcsize"),
        ("$ cat /proc/sys/vm/overcommit_memory\n0", Resource.RAM, "float32"),
        ("the data is 32 bit float", Resource.RAM, "float32"),
    ],
)
def test_limits_beside_a_refused_allocation(beside: str, resource: Resource, command: str) -> None:
    finding = first(f"{NUMPY}\n{beside}")
    assert finding.resource is resource
    assert any(command in advice.command for advice in finding.advice[:1])


def test_a_merge_that_multiplies_rows_is_named() -> None:
    finding = first(f'  File "/opt/pandas/core/reshape/merge.py", line 1748, in get_join_indexers\n{NUMPY}')
    assert "validate=" in finding.advice[0].command


def test_a_warning_before_the_kill_explains_it() -> None:
    finding = first("UserWarning: not enough memory to store the complete replay buffer 56.45GB > 14.92GB\nKilled")
    assert finding.details[0].startswith("The replay buffer needs 56.45GB, and 14.92GB")
    assert "buffer_size" in finding.advice[0].command


def test_a_process_in_a_table_of_nvidia_smi_is_named() -> None:
    row = "|    0      4410      C   ...onda3/envs/tf2/bin/python              10359MiB |"
    finding = first(f"{CUDA}\n{row}")
    assert finding.details[0] == "nvidia-smi shows process 4410 with 10.1 GiB of the GPU."
    assert "4410" in finding.advice[0].command
    assert first(f"{CUDA}\n{row.replace('10359', '  259')}").details[0].startswith("The program requested")


def test_memory_without_a_process_is_held_by_somebody_who_is_not_listed() -> None:
    table = (
        "| 30%   39C    P8    27W / 350W |  {}MiB / 24268MiB |      0%      Default |\n|  No running processes found |"
    )
    assert "fuser" in first(f"{CUDA}\n{table.format(24113)}").advice[0].command
    assert not any("fuser" in advice.command for advice in first(f"{CUDA}\n{table.format(12)}").advice)


def test_a_crash_with_frames_is_located() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/w/augment.py", line 58 in warp\n'
        '  File "/lib/torch/utils/data/_utils/worker.py", line 287 in _worker_loop'
    )
    finding = first(text)
    assert finding.kind is FailureKind.CRASH
    assert finding.details == ("It crashed in a loader worker, in warp at line 58 of /w/augment.py.",)
    assert not any("faulthandler" in advice.command for advice in finding.advice)


def test_ranks_on_one_gpu_are_told_apart_from_strangers() -> None:
    message = (
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU {} has a total "
        "capacity of 39.39 GiB of which 11.06 MiB is free. Process 5101 has 21.90 GiB memory in use. Including "
        "non-PyTorch memory, this process has 5.79 GiB memory in use."
    )
    assert "LOCAL_RANK" in first(message.format(0)).advice[0].command
    assert "5101" in first(message.format(3)).advice[0].command


def test_a_card_that_others_fill_is_the_whole_reason() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.77 "
        "GiB of which 14.12 MiB is free. Process 28871 has 14.10 GiB memory in use. Process 9 has 1.6 GiB memory in "
        "use. Of the allocated memory {} is allocated by PyTorch, and 21.00 MiB is reserved by PyTorch but unallocated."
    )
    assert [advice.text.split()[0] for advice in first(text.format("312.00 MiB")).advice] == ["Stop"]
    assert len(first(text.format("7.50 GiB")).advice) == 3


@pytest.mark.parametrize(
    ("frames", "command"),
    [
        ("attn_weights = torch.matmul(query_states, key_states.transpose(2, 3))", "attn_implementation"),
        ("in split_cross_attention_forward", "--opt-sdp-attention"),
        ("in training_step, documents of 200 to 6000 tokens, I don't truncate", "max_length"),
        ("nvidia-smi: A100-PCIE-40GB MIG 1g.5gb", "nvidia-smi -L"),
    ],
)
def test_what_needs_the_memory_is_named(frames: str, command: str) -> None:
    assert command in first(f"{frames}\n{CUDA}").advice[0].command


def test_weights_that_do_not_fit_are_no_matter_of_batches() -> None:
    frames = 'File "torch/nn/modules/module.py", line 780, in _apply\n    module._apply(fn)'
    text = f"batch_size=8\nTraceback (most recent call last):\n  {frames}\n{CUDA}"
    assert first(text).advice[0].text.startswith("The weights alone don't fit")
    assert "from_pretrained" in first(f"import transformers.Trainer\n{text}").advice[0].command
    assert not any("batch" in advice.command for advice in first(text).advice)


def test_a_cell_that_runs_again_keeps_its_first_model() -> None:
    text = f"First time the cell trained OK. I changed lr and ran the cell again\n<ipython-input-14-91ab>\n{CUDA}"
    assert "Restart the kernel" in first(text).advice[0].text


def test_a_constant_of_tensorflow_has_no_batches() -> None:
    error = "tensorflow.python.framework.errors_impl.InternalError: {{function_node __wrapped___EagerConst}} Dst tensor"
    advice = first(f"model.fit(x, y, batch_size=16)\n{error} is not initialized.").advice
    assert 'tf.device("CPU")' in advice[0].command
    assert not any("batch_size=" in piece.command for piece in advice)


def test_caches_and_arrays_of_floats_explain_a_kill() -> None:
    assert "--cache disk" in first("python train.py --img 640 --cache-images\nKilled").advice[0].command
    array = "x = np.array([cv2.resize(cv2.imread(f), (224, 224)) for f in files]) / 255."
    assert "uint8" in first(f"{array}\nYour session crashed after using all available RAM.").advice[0].command


def test_what_is_done_already_is_no_advice() -> None:
    text = f"with torch.autocast('cuda', dtype=torch.bfloat16), gradient_checkpointing=True:\n{CUDA}"
    commands = " ".join(advice.command for advice in first(text).advice)
    assert "autocast" not in commands
    assert "checkpoint(" not in commands


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_the_variable_is_the_one_that_the_message_names(variable: str) -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 21.9 "
        "GiB of which 0.50 GiB is free. Including non-PyTorch memory, this process has 21.4 GiB memory in use. Of the "
        "allocated memory 12.6 GiB is allocated by PyTorch, and 8.33 GiB is reserved "
        f"by PyTorch but unallocated. If it is large try setting {variable}=expandable_segments:True to avoid it."
    )
    assert first(text).advice[0].command == f"$ export {variable}=expandable_segments:True"


def test_a_worker_that_can_not_be_forked() -> None:
    frame = 'File "multiprocessing/popen_fork.py", in _launch\n    self.pid = os.fork()'
    text = f"{frame}\nOSError: [Errno 12] Cannot allocate memory"
    assert "num_workers=0" in first(text).advice[0].command


def test_predictions_that_pile_up_are_no_fragmentation() -> None:
    text = (
        'Traceback (most recent call last):\n  File "transformers/trainer.py", line 4383, in evaluation_loop\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.41 GiB. GPU 0 has a total capacity of 39.39 "
        "GiB of which 6.02 GiB is free. Including non-PyTorch memory, this process has 33.36 GiB memory in use. Of the "
        "allocated memory 28.11 GiB is allocated by PyTorch, and 4.73 GiB is reserved by PyTorch but unallocated."
    )
    assert "eval_accumulation_steps" in first(text).advice[0].command


@pytest.mark.parametrize(
    ("line", "is_suspected"),
    [
        ("epoch_loss += loss", True),
        ("losses.append(loss)", True),
        ("running_loss += loss.item()", False),
        ("train_loss += loss_fn(out, y).item()", False),
        ("loss += aux_loss", False),
        ("total_loss += 0.5 * kl_loss", False),
    ],
)
def test_losses_that_add_up_over_steps_are_named(line: str, is_suspected: bool) -> None:  # noqa: FBT001
    assert (first(f"    {line}\n{CUDA}").advice[0].text == "Add numbers:") is is_suspected
