#!/bin/sh
# Trains with a setting of the allocator; train.py hands the setting to torch.
export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb=128,expandable_segments:true
python train.py
