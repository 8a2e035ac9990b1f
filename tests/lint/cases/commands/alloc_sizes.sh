export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256MB  # expect: alloc-conf-unknown
export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256
