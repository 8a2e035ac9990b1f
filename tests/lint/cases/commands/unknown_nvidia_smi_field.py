import os
import shlex
import subprocess

FIELDS = ["index", "memory.used", "temperature.gpu"]
WRONG_FIELDS = ["index", "gpu_usage"]


def free_memory():
    output = subprocess.check_output(
        ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"], text=True
    )
    return [int(value) for value in output.split()]


def used_memory():
    output = subprocess.check_output(
        ["nvidia-smi", "--query-gpu=memory_in_use", "--format=csv,noheader,nounits"],  # expect: unknown-nvidia-smi-field
        text=True,
    )
    return int(output)


def query(fields):
    return subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv"], capture_output=True)


def query_all():
    subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv"])
    subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(WRONG_FIELDS), "--format=csv"])  # expect: unknown-nvidia-smi-field
    os.system("nvidia-smi --query-gpu=name,driver.version --format=csv")  # expect: unknown-nvidia-smi-field
    command = "nvidia-smi --query-gpu=name,driver_version --format=csv"
    subprocess.run(shlex.split(command))
    wrong = "nvidia-smi --query-gpus=name --format=csv"  # expect: unknown-nvidia-smi-field
    return subprocess.Popen(wrong.split(), stdout=subprocess.PIPE)
