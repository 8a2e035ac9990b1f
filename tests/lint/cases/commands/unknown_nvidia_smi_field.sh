#!/usr/bin/env bash
nvidia-smi
nvidia-smi -L
nvidia-smi -q -d MEMORY,UTILIZATION -i 0
nvidia-smi --query-gpu=index,name,memory.total,memory.used --format=csv,noheader,nounits
nvidia-smi --query-gpu=gpu.utilization --format=csv  # expect: unknown-nvidia-smi-field
nvidia-smi --query-gpu=timestamp,utilization.gpu,vram.used --format=csv -l 5 > gpu.csv  # expect: unknown-nvidia-smi-field
nvidia-smi --query-gpu=power.draw,clocks.sm,clocks.mem,fan.speed,pstate,temperature.gpu --format=csv -lms 500
nvidia-smi --query-gpu=name --format=json  # expect: unknown-nvidia-smi-field
nvidia-smi --interval=5  # expect: unknown-nvidia-smi-field
nvidia-smi --loop=5
nvidia-smi dmon -s pucvmt -d 1 -o DT
nvidia-smi pmon -c 1
nvidia-smi topo -m
nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv
nvidia-smi --query-compute-apps=pid,memory.used --format=csv  # expect: unknown-nvidia-smi-field
sudo nvidia-smi -pm 1 && sudo nvidia-smi -pl 250
watch -n 1 "nvidia-smi --query-gpu=memory.used,temp --format=csv"  # expect: unknown-nvidia-smi-field
watch -n 1 nvidia-smi
used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader | head -1)
free=$(nvidia-smi --query-gpu=memory.left --format=csv,noheader | head -1)  # expect: unknown-nvidia-smi-field
FIELDS=name,memory.used
nvidia-smi --query-gpu="$FIELDS" --format=csv
nvidia-smi \
    --query-gpu=index,memory.free \
    --format=csv \
    --refresh=2  # expect: unknown-nvidia-smi-field
which nvidia-smi || echo "nvidia-smi is not installed"
nvidia-smi | grep MiB
nvidia-smi memory  # expect: unknown-nvidia-smi-field
