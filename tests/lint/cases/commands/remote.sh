ssh "$HOST" bash -s <<'REMOTE'
export PYTORCH_CUDA_ALLOC_CONF=backend:cudamalloc  # expect: alloc-conf-unknown
cd yolov5
python train.py --data docs.yaml --weights yolov5l.pt --imgsz 1280 --gradient-accumulation 8  # expect: unknown-yolo-flag
REMOTE
cat <<'TEXT'
python train.py --data docs.yaml --weights yolov5l.pt --imgsz 1280 --gradient-accumulation 8
TEXT
PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python train.py --img 640 --weights yolov5s.pt --data coco.yaml
