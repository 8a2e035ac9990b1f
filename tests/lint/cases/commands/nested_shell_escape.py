import os
import subprocess

for batch in (4, 8):
    os.system(f"!python train.py --batch {batch}")  # expect: nested-shell-escape
    os.system(f"python train.py --batch {batch}")

subprocess.run("!pip install oomph", shell=True)  # expect: nested-shell-escape
subprocess.run(["!nvidia-smi", "-L"])  # expect: nested-shell-escape
subprocess.run("! grep -q error train.log", shell=True)
subprocess.run("test 1 != 2", shell=True)
print("!important")

command = "!ls runs"  # expect: nested-shell-escape
subprocess.check_output(command, shell=True)
note = "!python train.py"
