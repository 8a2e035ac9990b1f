#!/usr/bin/env bash
# Train a detector while another process takes most of the GPU for a while: examples/runs/shared-gpu and the README's
# pictures. The run is runs/train/shared-gpu, the screen of `oomph watch` is written as SVG.
#     PYTHONPATH=src bash benchmarks/shared_gpu.sh DATA_YAML WATCH_SVG
set -euo pipefail
run=runs/train/shared-gpu
python3 -m oomph train --data "$1" --cfg s --img 1280 --batch 64 --epochs 40 --name shared-gpu &
training=$!
until [ -e "$run/train_batch0.png" ]; do sleep 0.2; done
python3 benchmarks/watch_picture.py "$2" 0 38 &
sleep 25
python3 benchmarks/gpu_neighbor.py --left 6 --seconds 20
wait "$training"
